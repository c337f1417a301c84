// From the contract's samples to the core's, validated field by field.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "penstock/v1/job.pb.h"
#include "penstock/v1/plan.pb.h"
#include "planner/core/model/types.h"

namespace penstock::core {

// Possible errors: INVALID_ARGUMENT ("batch.samples[3]: ...").
absl::StatusOr<Batch> BatchFromProto(const v1::Batch& batch, const Job& job);

// Possible errors: INVALID_ARGUMENT (names `field`: no tokens, or more than the job's longest sample).
absl::StatusOr<SampleTokens> SampleFromProto(const v1::Sample& sample, const std::string& field,
                                             const Job& job);
absl::StatusOr<SampleTokens> SampleFromProto(const v1::SampleLengths& sample, const std::string& field,
                                             const Job& job);

}  // namespace penstock::core
