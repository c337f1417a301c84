#include "planner/service/engine/program_messages.h"

#include "common/status/status_macros.h"
#include "planner/service/engine/program_message.h"

namespace penstock {

absl::StatusOr<std::shared_ptr<void>> ProgramMessages::PlaceFor(bool anyway) const {
  using Place = std::pair<std::shared_ptr<void>, std::shared_ptr<void>>;
  auto place = std::make_shared<Place>();
  if (anyway) {
    *place = {quotas_->OpenStreamAnyway(owner_), budget_->HoldBytesAnyway(owner_, kStreamBytes)};
    return place;
  }
  PENSTOCK_ASSIGN_OR_RETURN(place->first, quotas_->OpenStream(owner_));
  PENSTOCK_ASSIGN_OR_RETURN(place->second, budget_->HoldBytes(owner_, kStreamBytes));
  return place;
}

absl::StatusOr<std::shared_ptr<void>> ProgramMessages::OpenStream(const Reader& reader) {
  MutexLock lock(&mutex_);
  if (!reader.is_worker || !workers_[reader.rank].stream.expired()) return PlaceFor(/*anyway=*/false);
  PENSTOCK_ASSIGN_OR_RETURN(std::shared_ptr<void> stream, PlaceFor(/*anyway=*/true));
  workers_[reader.rank].stream = stream;
  return stream;
}

absl::StatusOr<ProgramBytes> ProgramMessages::Message(const v1::Batch& batch, const v1::Plan& plan,
                                                      const Reader& reader,
                                                      absl::Span<const int64_t> profile_durations) {
  if (ProgramBytes found = Find(plan, reader.rank); found != nullptr) return found;
  std::string message = MakeProgramMessage(batch, plan, reader.rank, profile_durations).SerializeAsString();
  MutexLock lock(&mutex_);
  ProgramBytes bytes;
  if (reader.is_worker && workers_[reader.rank].message.expired()) {
    bytes = budget_->HoldAnyway(owner_, std::move(message));
    workers_[reader.rank].message = bytes;
  } else {
    PENSTOCK_ASSIGN_OR_RETURN(bytes, budget_->Hold(owner_, std::move(message)));
  }
  KeepLocked(plan, reader.rank, bytes);
  return bytes;
}

ProgramBytes ProgramMessages::Find(const v1::Plan& plan, uint32_t rank) const {
  MutexLock lock(&mutex_);
  const auto found = made_.find({plan.iteration(), rank});
  if (found == made_.end() || found->second.content_hash != plan.content_hash()) return nullptr;
  return found->second.bytes.lock();
}

void ProgramMessages::KeepLocked(const v1::Plan& plan, uint32_t rank, const ProgramBytes& bytes) {
  made_[{plan.iteration(), rank}] = {plan.content_hash(), bytes};
  if (made_.size() < sweep_at_) return;
  std::erase_if(made_, [](const auto& made) { return made.second.bytes.expired(); });
  sweep_at_ = 2 * made_.size() + 64;
}

}  // namespace penstock
