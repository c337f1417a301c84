#include "planner/service/standby/stored_jobs.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/annotate.h"

namespace penstock {

absl::StatusOr<StoredJobs> StoredJobs::From(const std::vector<StoredJob>& stored) {
  StoredJobs jobs;
  for (const StoredJob& one : stored) {
    std::optional<std::string> snapshot;
    if (one.snapshot.has_value()) snapshot = one.snapshot->bytes;
    absl::StatusOr<JobState> state = ReplayJob(snapshot, one.events);
    if (!state.ok())
      return AnnotateError(state.status(), absl::StrCat("job '", one.job_id, "' of the store"));
    jobs.jobs_.emplace(one.job_id, *std::move(state));
  }
  return jobs;
}

const JobState* StoredJobs::Find(const std::string& job_id) const {
  const auto found = jobs_.find(job_id);
  return found == jobs_.end() ? nullptr : &found->second;
}

}  // namespace penstock
