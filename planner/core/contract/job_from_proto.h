// From the contract's job to the core's, validated field by field.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "penstock/v1/job.pb.h"
#include "planner/core/model/types.h"
#include "planner/core/topology/world.h"

namespace penstock::core {

// All but the profile. `world`: of a mesh that is one of several side by side, and has no strategies itself.
// Possible errors: INVALID_ARGUMENT ("job.mesh.pipeline: 0; use at least 1"), UNIMPLEMENTED (a value that
// this version cannot plan yet); both name the field.
absl::StatusOr<Job> JobFromProto(const v1::JobSpec& job, const World& world = {});

}  // namespace penstock::core
