// What one change of a job would bring: a choice of its planning, or its mesh, put another way, all else as
// it is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "penstock/v1/job.pb.h"
#include "penstock/v1/plan.pb.h"

namespace penstock::cli {

struct Lever {
  // "schedule", "mesh": what is changed.
  std::string name;
  std::string now;
  std::string instead;
  // The flags of `penstock up` that change it.
  std::string flags;
  // The job with the change.
  v1::JobSpec job;
  // The job without it where that is to be planned otherwise than it is, so that the change alone tells the
  // two apart.
  std::optional<v1::JobSpec> before = {};
};

// Every other value of policy, layout, schedule, stage split, recompute, effort and division of the
// optimizer's state, some sizes of gradients' buckets, and every other mesh of as many ranks, as far as they
// can differ for this job.
std::vector<Lever> LeversOf(const v1::JobSpec& job, uint32_t global_batch);

// The sum over the batches of what is planned for `job`, nanoseconds. Possible errors: those of planning;
// IsInfeasible tells those that are a result.
absl::StatusOr<int64_t> PlannedNs(const v1::JobSpec& job, const std::vector<v1::Batch>& batches);

}  // namespace penstock::cli
