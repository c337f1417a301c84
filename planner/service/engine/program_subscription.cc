#include "planner/service/engine/program_subscription.h"

#include <utility>

#include "planner/service/engine/job_delivery.h"

namespace penstock {

ProgramSubscription::ProgramSubscription(std::shared_ptr<JobDelivery> delivery,
                                         const v1::StreamProgramsRequest& request, WakeList::Wake wake)
    : delivery_(std::move(delivery)),
      request_(request),
      place_(delivery_->OpenStream(request)),
      next_iteration_(request.from_iteration()),
      reader_id_(place_.ok() ? std::optional(delivery_->readers().streams().Add(request)) : std::nullopt),
      wake_id_(delivery_->readers().wakes().Add(std::move(wake))) {}

ProgramSubscription::~ProgramSubscription() {
  delivery_->readers().wakes().Remove(wake_id_);
  if (reader_id_.has_value()) delivery_->readers().streams().Remove(*reader_id_);
}

ProgramSubscription::Item ProgramSubscription::Next() {
  if (!place_.ok()) return place_.status();
  Item item = delivery_->Next(request_, next_iteration_, &told_);
  if (std::holds_alternative<ProgramBytes>(item)) ++next_iteration_;
  return item;
}

}  // namespace penstock
