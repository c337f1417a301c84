#include "planner/service/store/memory_event_store.h"

#include <algorithm>

#include "common/status/status_macros.h"

namespace penstock {
namespace {

uint64_t LastSequence(const StoredJob& job) { return job.first_sequence + job.events.size() - 1; }

void ReplaceEvents(const Snapshot& snapshot, StoredJob* job) {
  const auto replaced = static_cast<std::ptrdiff_t>(snapshot.sequence + 1 - job->first_sequence);
  job->events.erase(job->events.begin(), job->events.begin() + replaced);
  job->first_sequence = snapshot.sequence + 1;
  job->snapshot = snapshot;
}

}  // namespace

absl::Status MemoryEventStore::StoppedLocked() const {
  return stopped_ ? absl::CancelledError("the store was stopped") : absl::OkStatus();
}

JobPositions MemoryEventStore::PositionsLocked(absl::Span<const JobChange> changes) const {
  JobPositions positions;
  for (uint64_t job : JobsOf(changes)) {
    const auto found = jobs_.find(job);
    if (found == jobs_.end()) continue;
    const StoredJob& stored = found->second.job;
    positions.Set(job, {.last_sequence = LastSequence(stored),
                        .snapshot_sequence = stored.snapshot.has_value() ? stored.snapshot->sequence : 0});
  }
  return positions;
}

void MemoryEventStore::ApplyLocked(const JobChange& change) {
  if (change.remove) {
    jobs_.erase(change.job);
    return;
  }
  const auto [entry, first] = jobs_.try_emplace(change.job);
  auto& [job, batches] = entry->second;
  if (first) {
    job.job = change.job;
    job.job_id = change.job_id;
  }
  job.events.insert(job.events.end(), change.events.begin(), change.events.end());
  for (const auto& [iteration, batch] : change.batches) batches[iteration] = batch;
  batches.erase(batches.begin(), batches.lower_bound(change.forget_batches_before.value_or(0)));
  if (change.snapshot.has_value()) ReplaceEvents(*change.snapshot, &job);
}

absl::Status MemoryEventStore::Commit(absl::Span<const JobChange> changes) {
  MutexLock lock(&mutex_);
  PENSTOCK_RETURN_IF_ERROR(StoppedLocked());
  PENSTOCK_RETURN_IF_ERROR(CheckRanges(changes));
  PENSTOCK_RETURN_IF_ERROR(PositionsLocked(changes).Advance(changes));
  for (const JobChange& change : changes) ApplyLocked(change);
  largest_job_ = std::max(largest_job_, LargestJobOf(changes));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<StoredJob>> MemoryEventStore::Load() {
  MutexLock lock(&mutex_);
  PENSTOCK_RETURN_IF_ERROR(StoppedLocked());
  std::vector<StoredJob> jobs;
  jobs.reserve(jobs_.size());
  for (const auto& [key, entry] : jobs_) jobs.push_back(entry.job);
  return jobs;
}

absl::StatusOr<uint64_t> MemoryEventStore::LargestJob() {
  MutexLock lock(&mutex_);
  PENSTOCK_RETURN_IF_ERROR(StoppedLocked());
  return largest_job_;
}

absl::StatusOr<std::string> MemoryEventStore::GetBatch(uint64_t job, uint64_t iteration) {
  MutexLock lock(&mutex_);
  PENSTOCK_RETURN_IF_ERROR(StoppedLocked());
  const auto entry = jobs_.find(job);
  if (entry == jobs_.end()) return BatchNotFound(job, iteration);
  const auto batch = entry->second.batches.find(iteration);
  if (batch == entry->second.batches.end()) return BatchNotFound(job, iteration);
  return batch->second;
}

absl::Status MemoryEventStore::Check() {
  MutexLock lock(&mutex_);
  return StoppedLocked();
}

void MemoryEventStore::Stop() {
  MutexLock lock(&mutex_);
  stopped_ = true;
}

}  // namespace penstock
