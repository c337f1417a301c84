// The loss of a model on samples, without training on them.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/inference/language_model.h"
#include "worker/inference/packed_samples.h"

namespace penstock::worker {

struct EvaluatedLoss {
  // Of the cross-entropy at all positions that the loss counts (execution.md, section 10), each times its
  // weight.
  double sum = 0;
  // Of their weights; without any, as many as positions.
  double weight = 0;
  // Those that weigh something.
  uint64_t positions = 0;

  double mean() const { return weight == 0 ? 0 : sum / weight; }
};

// Of samples that are computed together. Possible errors: those of PackSamples, RESOURCE_EXHAUSTED (memory),
// INTERNAL.
absl::StatusOr<EvaluatedLoss> Evaluate(const LanguageModel& model,
                                       const std::vector<SampleTokensOf>& samples);

}  // namespace penstock::worker
