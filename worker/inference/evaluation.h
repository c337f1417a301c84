// The loss of a model on samples, without training on them.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/inference/language_model.h"
#include "worker/inference/packed_samples.h"

namespace penstock::worker {

struct EvaluatedLoss {
  // Of the cross-entropy at all positions that the loss counts (execution.md, section 10).
  double sum = 0;
  uint64_t positions = 0;

  double mean() const { return positions == 0 ? 0 : sum / static_cast<double>(positions); }
};

// Of samples that are computed together. Possible errors: those of PackSamples, RESOURCE_EXHAUSTED (memory),
// INTERNAL.
absl::StatusOr<EvaluatedLoss> Evaluate(const LanguageModel& model,
                                       const std::vector<SampleTokensOf>& samples);

}  // namespace penstock::worker
