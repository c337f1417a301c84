// Whether a model can be divided over the stage groups that a mesh asks for.
#pragma once

#include "absl/status/status.h"
#include "penstock/v1/job.pb.h"

namespace penstock::core {

// Possible errors: INVALID_ARGUMENT (names job.mesh.tensor or job.mesh.context, and the nearest degrees that
// can be; or the layer of the profile that was not measured at the degree).
absl::Status CheckGroup(const v1::JobSpec& job);

// That part of it which needs no profile.
absl::Status CheckGroupOfModel(const v1::Mesh& mesh, const v1::ModelSpec& model);

}  // namespace penstock::core
