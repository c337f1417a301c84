// Samples that are run forward together, end to end.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/inference/language_model.h"
#include "worker/program/program.h"

namespace penstock::worker {

struct SampleTokensOf {
  std::vector<int32_t> input;
  std::vector<int32_t> target;
  // What each token of the target weighs in the loss; empty: 1.
  std::vector<float> weights = {};
};

// Their tokens on the model's device, and who attends to whom. Possible errors: those of MakeTokenBatch and
// ToDevice.
absl::StatusOr<TokenBatch> PackSamples(const LanguageModel& model,
                                       const std::vector<SampleTokensOf>& samples);

}  // namespace penstock::worker
