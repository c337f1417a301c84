// The programs of one rank, one after another, pulled by the reader: see Job::Subscribe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "penstock/v1/planner_service.pb.h"
#include "planner/service/engine/stream_budget.h"
#include "planner/service/engine/wake_list.h"

namespace penstock {

class JobDelivery;

// Holds no messages: a slow reader costs its place and what the transport holds, which StreamBudget counts,
// and one that falls behind what is held gets OUT_OF_RANGE.
class ProgramSubscription {
 public:
  // The next program is not planned yet.
  struct Pending {};
  // The next program (a StreamProgramsResponse), Pending, or how the stream ends (OK: the job is finished).
  using Item = std::variant<Pending, ProgramBytes, absl::Status>;

  ProgramSubscription(std::shared_ptr<JobDelivery> delivery, const v1::StreamProgramsRequest& request,
                      WakeList::Wake wake);
  ~ProgramSubscription();
  ProgramSubscription(const ProgramSubscription&) = delete;
  ProgramSubscription& operator=(const ProgramSubscription&) = delete;

  // Does not block. One thread at a time.
  Item Next();

 private:
  const std::shared_ptr<JobDelivery> delivery_;
  const v1::StreamProgramsRequest request_;
  const absl::StatusOr<std::shared_ptr<void>> place_;
  uint64_t next_iteration_;
  // Strategies of which it was sent who is where.
  std::set<uint32_t> told_;
  // Of JobReaders::streams(); nothing where it has no place.
  const std::optional<uint64_t> reader_id_;
  const uint64_t wake_id_;
};

}  // namespace penstock
