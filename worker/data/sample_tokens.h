// The tokens of a planned sample, cut as the plan counts them.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/dataset/indexed_dataset.h"

namespace penstock::worker {

// Where an input loses tokens that is longer than planned; a target always loses its end.
enum class InputCut : uint8_t { kEnd, kStart };

// `input_tokens` of the sample's input, without what is cut, then the first `target_tokens` of its target.
// Thread-safe. Possible errors: INVALID_ARGUMENT (the dataset has no such sample, or it has fewer tokens: it
// is not the dataset that the lengths were read from).
absl::StatusOr<std::vector<int32_t>> SampleTokens(const IndexedDataset& dataset, uint64_t sample,
                                                  uint32_t input_tokens, uint32_t target_tokens,
                                                  InputCut cut = InputCut::kEnd);

}  // namespace penstock::worker
