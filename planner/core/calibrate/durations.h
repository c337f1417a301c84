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

// Of one rank, by the instruction's number; of passes what the rank takes alone. What passes hide of
// reductions is what those of the plan do. `reshards`: where the plan has shares. Errors as above.
absl::StatusOr<std::vector<int64_t>> OwnDurations(const v1::Plan& plan, const Batch& batch,
                                                  const CostModel& costs, int rank,
                                                  const ReshardDurations& reshards = {});

}  // namespace penstock::core
