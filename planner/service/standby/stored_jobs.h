// Jobs as a store has them, for a planner that does not serve them: what GetJob and ListJobs say, as of the
// last commit.
//
//   PENSTOCK_ASSIGN_OR_RETURN(std::vector<StoredJob> stored, store->Load());
//   PENSTOCK_ASSIGN_OR_RETURN(StoredJobs jobs, StoredJobs::From(stored));
//   if (const JobState* job = jobs.Find("mix")) Tell(DescriptionOf(*job, 0));
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/service/state/job_state.h"
#include "planner/service/store/event_store.h"

namespace penstock {

class StoredJobs {
 public:
  // Possible errors: DATA_LOSS (names the job).
  static absl::StatusOr<StoredJobs> From(const std::vector<StoredJob>& stored);

  // Null: there is none.
  const JobState* Find(const std::string& job_id) const;
  // By job id.
  const std::map<std::string, JobState>& all() const { return jobs_; }

 private:
  std::map<std::string, JobState> jobs_;
};

}  // namespace penstock
