// Writes the weights of a dataset's tokens beside them (weights_format.h). Used by IndexedDatasetWriter.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/dataset/partial_file.h"

namespace penstock {

// One weight for each token of a target, each finite and at least 0; or none. Possible errors:
// INVALID_ARGUMENT (names the entry).
absl::Status CheckWeights(absl::Span<const float> weights, size_t target_tokens);

class TokenWeightsWriter {
 public:
  explicit TokenWeightsWriter(std::string prefix) : prefix_(std::move(prefix)) {}

  // A sample of so many tokens. `weights` are sound; empty: each token of the target has 1. Nothing is
  // written before the first one that is not 1. Possible errors: those of PartialFile.
  absl::Status Add(size_t input_tokens, size_t target_tokens, absl::Span<const float> weights);

  // Puts the file in place, or removes an earlier dataset's where all weights are 1. `index_crc32`: of the
  // .idx file beside it. Possible errors: those of PartialFile.
  absl::Status Finish(uint32_t index_crc32);

 private:
  struct Run {
    uint32_t input = 0;
    uint32_t target = 0;
  };

  absl::Status Begin();
  absl::Status Put(const float* weights, size_t count);
  absl::Status PutRun(const Run& run);
  // Of a weight among the distinct ones, which it joins; nothing where there are too many.
  std::optional<uint8_t> CodeOf(float weight);
  // One distinct weight too many: what was written so far becomes float32.
  absl::Status Widen();

  const std::string prefix_;
  // Samples whose weights are all 1, before the first other one.
  std::vector<Run> ones_;
  std::optional<PartialFile> codes_;
  bool wide_ = false;
  std::vector<float> distinct_;
  std::unordered_map<float, uint8_t> code_of_;
  uint64_t tokens_ = 0;
};

}  // namespace penstock
