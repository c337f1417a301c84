#include "planner/service/store/loaded_jobs.h"

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "planner/service/store/record_checksum.h"

namespace penstock {
namespace {

absl::Status Misplaced(const RecordKey& key) {
  return absl::DataLossError(
      absl::StrCat("the ", key.kind, " ", key.number, " of job ", key.job, " is not where it belongs"));
}

}  // namespace

void LoadedJobs::AddJob(uint64_t job, std::string job_id, uint64_t last_sequence) {
  jobs_[job] = {.job = {.job = job, .job_id = std::move(job_id)}, .last_sequence = last_sequence};
}

absl::Status LoadedJobs::AddSnapshot(uint64_t job, uint64_t sequence, uint64_t checksum, std::string bytes) {
  const RecordKey key = SnapshotKey(job, sequence);
  PENSTOCK_RETURN_IF_ERROR(CheckRecord(key, bytes, checksum));
  const auto entry = jobs_.find(job);
  if (entry == jobs_.end()) return Misplaced(key);
  entry->second.job.snapshot = Snapshot{.sequence = sequence, .bytes = std::move(bytes)};
  entry->second.job.first_sequence = sequence + 1;
  return absl::OkStatus();
}

absl::Status LoadedJobs::AddEvent(uint64_t job, uint64_t sequence, uint64_t checksum, std::string bytes) {
  const RecordKey key = EventKey(job, sequence);
  PENSTOCK_RETURN_IF_ERROR(CheckRecord(key, bytes, checksum));
  const auto entry = jobs_.find(job);
  if (entry == jobs_.end()) return Misplaced(key);
  StoredJob& stored = entry->second.job;
  if (sequence != stored.first_sequence + stored.events.size()) return Misplaced(key);
  stored.events.push_back(std::move(bytes));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<StoredJob>> LoadedJobs::Finish() && {
  std::vector<StoredJob> jobs;
  jobs.reserve(jobs_.size());
  for (auto& [key, entry] : jobs_) {
    const uint64_t next = entry.job.first_sequence + entry.job.events.size();
    if (next != entry.last_sequence + 1) {
      return absl::DataLossError(absl::StrCat("events of job ", key, " are missing: ", entry.last_sequence,
                                              " were stored, and what is there ends before event ", next));
    }
    jobs.push_back(std::move(entry.job));
  }
  return jobs;
}

}  // namespace penstock
