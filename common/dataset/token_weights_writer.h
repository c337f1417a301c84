// Writes the weights of a dataset's tokens beside them (weights_format.h). Used by IndexedDatasetWriter.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/dataset/dataset_writer_mark.h"
#include "common/dataset/partial_file.h"
#include "common/dataset/written_lengths.h"

namespace penstock {

// One weight for each token of a target, each finite and at least 0; or none. Possible errors:
// INVALID_ARGUMENT (names the entry).
absl::Status CheckWeights(absl::Span<const float> weights, size_t target_tokens);

class TokenWeightsWriter {
 public:
  // `before`: the lengths of the samples that have been added, which outlive this.
  TokenWeightsWriter(std::string prefix, WrittenLengths& before)
      : prefix_(std::move(prefix)), before_(before) {}

  // Goes on at a mark. Possible errors: those of PartialFile::OpenAt.
  absl::Status OpenAt(const TokenWeightsMark& mark);

  // A sample. `weights` are sound; empty: each token of the target has 1. Nothing is written before the first
  // one that is not 1. Possible errors: those of PartialFile.
  absl::Status Add(const SampleLength& length, absl::Span<const float> weights);

  TokenWeightsMark Mark() const;
  absl::Status Sync();
  void Keep();

  // Puts the file in place, or removes an earlier dataset's where all weights are 1. `index_crc32`: of the
  // .idx file beside it. Possible errors: those of PartialFile.
  absl::Status Finish(uint32_t index_crc32);

  // What another process has left of PREFIX aside.
  static absl::Status RemoveUnfinished(const std::string& prefix);

 private:
  absl::Status Begin();
  absl::Status Put(const float* weights, size_t count);
  absl::Status PutOnes(const SampleLength& length);
  // Of a weight among the distinct ones, which it joins; nothing where there are too many.
  std::optional<uint8_t> CodeOf(float weight);
  // One distinct weight too many: what was written so far becomes float32.
  absl::Status Widen();
  absl::Status WriteInPlace(uint32_t index_crc32);

  const std::string prefix_;
  WrittenLengths& before_;
  std::optional<PartialFile> file_;
  // What was written before it became float32: marks from before are good for as long as it is there.
  std::optional<PartialFile> codes_;
  bool wide_ = false;
  std::vector<float> distinct_;
  std::unordered_map<float, uint8_t> code_of_;
  uint64_t tokens_ = 0;
};

}  // namespace penstock
