// What is known of a job's iterations, for who looks at them. Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "penstock/v1/planner_service.pb.h"
#include "planner/service/engine/job_planning.h"
#include "planner/service/engine/job_record.h"

namespace penstock {

class JobIterations {
 public:
  // Both must outlive it.
  JobIterations(const JobRecord& record, JobPlanning& planning) : record_(record), planning_(planning) {}

  // See Job.
  absl::StatusOr<v1::GetIterationResponse> Get(uint64_t iteration, uint32_t compact_version);
  absl::StatusOr<HeldIteration> Held(uint64_t iteration) const;
  std::vector<v1::IterationSummary> Summaries(uint64_t from_iteration) const;
  std::optional<v1::IterationSummary> LastSummary() const;

 private:
  // Has a plan that is not in memory made again. Returns what whoever asked for it is told.
  absl::Status MakeAgain(uint64_t iteration, const absl::Status& missing);

  const JobRecord& record_;
  JobPlanning& planning_;
};

}  // namespace penstock
