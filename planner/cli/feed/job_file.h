// A job as a file: a penstock.v1.JobSpec as JSON, as it is in the "job" of a run.json.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "penstock/v1/job.pb.h"

namespace penstock::cli {

// Possible errors: NOT_FOUND, INVALID_ARGUMENT (no JobSpec, or one without an id; names --job-file and the
// file).
absl::StatusOr<v1::JobSpec> ReadJobFile(const std::string& path);

}  // namespace penstock::cli
