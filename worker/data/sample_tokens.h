// The tokens of a planned sample, cut as the plan counts them.
#pragma once

#include <cstdint>
#include <optional>
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

// What the first `target_tokens` of a sample's target weigh in the loss. `planned`: what the plan says that
// they weigh together; nothing: each position that the loss counts weighs 1. `first_counts`: whether the loss
// counts the first of them (execution.md, section 10). Thread-safe. Possible errors: those of SampleTokens,
// INVALID_ARGUMENT (the dataset has other weights than the plan counts on).
absl::StatusOr<std::vector<float>> SampleWeights(const IndexedDataset& dataset, uint64_t sample,
                                                 uint32_t target_tokens, bool first_counts,
                                                 std::optional<double> planned);

}  // namespace penstock::worker
