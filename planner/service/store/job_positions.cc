#include "planner/service/store/job_positions.h"

#include <algorithm>
#include <limits>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace penstock {
namespace {

// Databases count in signed numbers.
constexpr uint64_t kLargest = std::numeric_limits<int64_t>::max();

std::string NameOf(const JobChange& change) { return absl::StrCat("job ", change.job, ": "); }

absl::Status CheckRange(const JobChange& change, absl::string_view field, uint64_t value, uint64_t least) {
  if (value >= least && value <= kLargest) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(NameOf(change), field, " is ", value, ", not from ", least, " to ", kLargest));
}

absl::Status CheckRanges(const JobChange& change) {
  PENSTOCK_RETURN_IF_ERROR(CheckRange(change, "job", change.job, 1));
  if (!change.events.empty()) {
    PENSTOCK_RETURN_IF_ERROR(CheckRange(change, "first_sequence", change.first_sequence, 1));
  }
  for (const auto& [iteration, batch] : change.batches) {
    PENSTOCK_RETURN_IF_ERROR(CheckRange(change, "the iteration of a batch", iteration, 0));
  }
  PENSTOCK_RETURN_IF_ERROR(
      CheckRange(change, "forget_batches_before", change.forget_batches_before.value_or(0), 0));
  if (change.snapshot.has_value()) {
    PENSTOCK_RETURN_IF_ERROR(CheckRange(change, "snapshot.sequence", change.snapshot->sequence, 1));
  }
  return absl::OkStatus();
}

absl::Status CheckFirst(const JobChange& change) {
  if (change.events.empty()) {
    return absl::AbortedError(absl::StrCat(NameOf(change), "is not stored; it was removed by somebody else"));
  }
  if (change.job_id.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(NameOf(change), "its first change has no job_id: set it"));
  }
  return absl::OkStatus();
}

absl::Status CheckSequences(const JobChange& change, const JobPosition& position) {
  if (!change.events.empty() && change.first_sequence != position.last_sequence + 1) {
    return absl::AbortedError(absl::StrCat(NameOf(change), "event ", change.first_sequence,
                                           " does not follow event ", position.last_sequence,
                                           ", the last that is stored; somebody else writes to this store"));
  }
  if (!change.snapshot.has_value()) return absl::OkStatus();
  const uint64_t last = position.last_sequence + change.events.size();
  if (change.snapshot->sequence > last || change.snapshot->sequence < position.snapshot_sequence) {
    return absl::AbortedError(
        absl::StrCat(NameOf(change), "a snapshot after event ", change.snapshot->sequence,
                     " does not fit: stored are a snapshot after event ", position.snapshot_sequence,
                     " and events up to ", last, "; somebody else writes to this store"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckRanges(absl::Span<const JobChange> changes) {
  for (const JobChange& change : changes) PENSTOCK_RETURN_IF_ERROR(CheckRanges(change));
  return absl::OkStatus();
}

absl::Status JobPositions::AdvanceJob(const JobChange& change) {
  if (change.remove) {
    positions_.erase(change.job);
    return absl::OkStatus();
  }
  const auto stored = positions_.find(change.job);
  if (stored == positions_.end()) PENSTOCK_RETURN_IF_ERROR(CheckFirst(change));
  JobPosition position = stored == positions_.end() ? JobPosition{} : stored->second;
  PENSTOCK_RETURN_IF_ERROR(CheckSequences(change, position));
  position.last_sequence += change.events.size();
  if (change.snapshot.has_value()) position.snapshot_sequence = change.snapshot->sequence;
  positions_[change.job] = position;
  return absl::OkStatus();
}

absl::Status JobPositions::Advance(absl::Span<const JobChange> changes) {
  for (const JobChange& change : changes) PENSTOCK_RETURN_IF_ERROR(AdvanceJob(change));
  return absl::OkStatus();
}

std::vector<uint64_t> JobsOf(absl::Span<const JobChange> changes) {
  std::set<uint64_t> jobs;
  for (const JobChange& change : changes) jobs.insert(change.job);
  return {jobs.begin(), jobs.end()};
}

uint64_t LargestJobOf(absl::Span<const JobChange> changes) {
  uint64_t largest = 0;
  for (const JobChange& change : changes) largest = std::max(largest, change.job);
  return largest;
}

absl::Status BatchNotFound(uint64_t job, uint64_t iteration) {
  return absl::NotFoundError(
      absl::StrCat("the batch of iteration ", iteration, " of job ", job, " is not stored"));
}

}  // namespace penstock
