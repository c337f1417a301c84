// The measured profile in the contract's form. Without LibTorch.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "penstock/v1/job.pb.h"
#include "worker/profile/measured_profile.h"

namespace penstock::worker {

// The model of a file that holds the JSON form of v1::ModelSpec.
// Possible errors: those of ReadFile, INVALID_ARGUMENT (names the file).
absl::StatusOr<v1::ModelSpec> ReadModelSpec(const std::string& path);

// Without its comment (provenance.h).
v1::CostProfile ToProto(const MeasuredProfile& profile, const v1::ModelSpec& model);

// Writes the JSON form of v1::ProfileFile. Possible errors: those of WriteFileAtomically.
absl::Status WriteProfileFile(const v1::ModelSpec& model, const v1::CostProfile& profile,
                              const std::string& path);

}  // namespace penstock::worker
