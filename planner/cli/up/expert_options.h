// What `penstock up` is told of a model's experts.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "penstock/v1/job.pb.h"
#include "planner/cli/up/up_options.h"

namespace penstock::cli {

// Of a model that flags describe. Possible errors: INVALID_ARGUMENT (names the flag).
absl::Status CheckExperts(const UpOptions& options);
void SetExperts(const UpOptions& options, v1::ModelSpec& model);

// Of any model with experts: losses of routers and capacity of experts are those of the flags, where there
// are some. Possible errors: INVALID_ARGUMENT (names the flag).
absl::StatusOr<v1::ModelSpec> WithRouterOptions(const UpOptions& options, v1::ModelSpec model);

}  // namespace penstock::cli
