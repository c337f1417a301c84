// The tokens of a planned sample, cut as the plan counts them.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/dataset/indexed_dataset.h"

namespace penstock::worker {

// The first `input_tokens` of the sample's input, then the first `target_tokens` of its target. Thread-safe.
// Possible errors: INVALID_ARGUMENT (the dataset has no such sample, or it has fewer tokens: it is not the
// dataset that the lengths were read from).
absl::StatusOr<std::vector<int32_t>> SampleTokens(const IndexedDataset& dataset, uint64_t sample,
                                                  uint32_t input_tokens, uint32_t target_tokens);

}  // namespace penstock::worker
