// What every instruction of a plan takes by other costs than those it was planned with.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "penstock/v1/plan.pb.h"
#include "planner/core/contract/reshard_durations.h"
#include "planner/core/cost/cost_model.h"
#include "planner/core/program/program_set.h"

namespace penstock::core {

// `programs`: of ProgramSetOfPlan(plan). `costs`: of the job that the plan is of, with another profile.
// Possible errors: INVALID_ARGUMENT (a sample that the batch lacks, or a shape outside of the profile).
absl::Status SetDurations(const v1::Plan& plan, const Batch& batch, const CostModel& costs,
                          ProgramSet* programs);

// What ranks do together, for as long as the passes of all of them leave it to do.
struct JointDurations {
  // Of REDUCE_GRADIENTS, by stage and in it by tensor rank.
  std::vector<int64_t> reduce_ns;
  // Where the plan has shares.
  ReshardDurations reshards = {};
};

// Whether the durations of passes are asked for at all; false: a plan without instructions will do.
inline bool HidesBesidePasses(const CostModel& costs) {
  return costs.has_gradient_buckets() || costs.has_shares();
}

// `plan`: the whole one, of all its meshes; of one that runs several side by side `costs` are of any of them.
// What passes hide is what those of the plan do. Linear in the instructions of all ranks.
// Possible errors: INVALID_ARGUMENT (not a plan of the job's ranks).
absl::StatusOr<JointDurations> JointDurationsOf(const v1::Plan& plan, const CostModel& costs);

// Of one rank, by the instruction's number; of passes what the rank takes alone. Programs of other ranks need
// no instructions. `plan`: of the mesh that `costs` are of. `joint`: of the whole plan. Errors as above.
absl::StatusOr<std::vector<int64_t>> OwnDurations(const v1::Plan& plan, const Batch& batch,
                                                  const CostModel& costs, int rank,
                                                  const JointDurations& joint);

}  // namespace penstock::core
