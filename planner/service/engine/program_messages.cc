#include "planner/service/engine/program_messages.h"

#include "absl/strings/str_cat.h"
#include "common/compact/instruction_columns.h"
#include "common/status/status_macros.h"
#include "planner/service/engine/message_limit.h"

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

absl::StatusOr<ProgramBytes> ProgramMessages::Message(const v1::Batch& batch, const PackedPlan& plan,
                                                      const Reader& reader,
                                                      absl::Span<const int64_t> profile_durations,
                                                      const NewTopologies& topologies) {
  const Key key = KeyOf(plan, reader, topologies);
  if (ProgramBytes found = Find(plan, key); found != nullptr) return found;
  PENSTOCK_ASSIGN_OR_RETURN(const v1::StreamProgramsResponse program,
                            MakeProgramMessage(batch, plan, reader.rank, profile_durations,
                                               reader.compact_version >= kCompactVersion, topologies));
  PENSTOCK_RETURN_IF_ERROR(
      CheckMessage(absl::StrCat("the program of rank ", reader.rank, " of iteration ", program.iteration()),
                   program, most_bytes_, reader.compact_version));
  std::string message = program.SerializeAsString();
  MutexLock lock(&mutex_);
  ProgramBytes bytes;
  if (reader.is_worker && workers_[reader.rank].message.expired()) {
    bytes = budget_->HoldAnyway(owner_, std::move(message));
    workers_[reader.rank].message = bytes;
  } else {
    PENSTOCK_ASSIGN_OR_RETURN(bytes, budget_->Hold(owner_, std::move(message)));
  }
  KeepLocked(plan, key, bytes);
  return bytes;
}

ProgramMessages::Key ProgramMessages::KeyOf(const PackedPlan& plan, const Reader& reader,
                                            const NewTopologies& topologies) {
  return {plan.frame().iteration(), reader.rank, reader.compact_version >= kCompactVersion,
          topologies.of_plan.has_value(), topologies.of_validation.has_value()};
}

ProgramBytes ProgramMessages::Find(const PackedPlan& plan, const Key& key) const {
  MutexLock lock(&mutex_);
  const auto found = made_.find(key);
  if (found == made_.end() || found->second.content_hash != plan.frame().content_hash()) return nullptr;
  return found->second.bytes.lock();
}

void ProgramMessages::KeepLocked(const PackedPlan& plan, const Key& key, const ProgramBytes& bytes) {
  made_[key] = {plan.frame().content_hash(), bytes};
  if (made_.size() < sweep_at_) return;
  std::erase_if(made_, [](const auto& made) { return made.second.bytes.expired(); });
  sweep_at_ = 2 * made_.size() + 64;
}

}  // namespace penstock
