// What the cases of the equivalence tests train on.
#pragma once

#include <cstddef>
#include <vector>

#include "penstock/v1/plan.pb.h"
#include "tests/system/harness/tiny_job.h"

namespace penstock::testing {

// Samples of a batch.
inline constexpr size_t kEquivalenceBatch = 8;

// Some samples without input, some without target, and one in each batch that is longer than the others.
std::vector<TinySample> EquivalenceSamples();

// The same with weights of tokens: masks, halves and more than one; a sample of each batch has none.
std::vector<TinySample> WeightedSamples();

// Of samples as TinyBatches has them: what they weigh, where it is not what their positions are, and their
// tasks.
std::vector<v1::Batch> WeightedBatches(std::vector<v1::Batch> batches, const std::vector<TinySample>& samples,
                                       bool encoder_decoder);

}  // namespace penstock::testing
