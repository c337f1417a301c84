// From the contract's measured passes to the core's, validated.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "penstock/v1/planner_service.pb.h"
#include "planner/core/calibrate/measured_pass.h"
#include "planner/core/cost/cost_model.h"

namespace penstock::core {

// BACKWARD_INPUT counts with the BACKWARD_WEIGHT that follows it at once, of the same stage and samples;
// alone it is refused. `costs`, `job`: of the job that they are of. Possible errors: INVALID_ARGUMENT
// ("passes[3].stage: ...").
absl::StatusOr<std::vector<MeasuredPass>> PassesFromProto(
    const google::protobuf::RepeatedPtrField<v1::MeasuredPass>& passes, const CostModel& costs,
    const Job& job);

}  // namespace penstock::core
