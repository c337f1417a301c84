// Reads token datasets in Megatron-LM's indexed format: PREFIX.idx (header, lengths, offsets, documents) and
// PREFIX.bin (tokens). The index is held in memory (8 bytes a sample); tokens are read as they are asked for.
//
// A sample is a document. A document of one sequence is learnt whole; of two sequences the first is the input
// (prompt) and the second the target, so that the loss counts the second alone.
//
//   auto dataset = IndexedDataset::Open("data/flan");     // data/flan.idx, data/flan.bin
//   SampleLength length = (*dataset)->Length(7);           // from the index alone: no token is read
//   absl::StatusOr<std::vector<int32_t>> tokens = (*dataset)->Tokens(7);   // input, then target
//
// Format: megatron/core/datasets/indexed_dataset.py of NVIDIA/Megatron-LM (magic "MMIDIDX\0\0", version 1).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace penstock {

// Tokens of a sample. A document of one sequence has input = 0.
struct SampleLength {
  uint32_t input = 0;
  uint32_t target = 0;
};

class IndexedDataset {
 public:
  // Reads the index and opens the tokens. `prefix` is the path without .idx and .bin.
  // Possible errors: NOT_FOUND (a file is missing), INVALID_ARGUMENT (broken or truncated: names the file,
  // the offset and what was expected there), DATA_LOSS or UNAVAILABLE (reading failed).
  static absl::StatusOr<std::unique_ptr<IndexedDataset>> Open(const std::string& prefix);

  virtual ~IndexedDataset() = default;

  // Number of samples.
  virtual size_t size() const = 0;
  // 2 (uint16) or 4 (int32), as stored in the .bin file.
  virtual size_t bytes_per_token() const = 0;
  // `sample` < size().
  virtual SampleLength Length(size_t sample) const = 0;
  // All tokens of the sample: input, then target. `sample` < size(). Thread-safe.
  // Possible errors: DATA_LOSS (the .bin file was cut since it was opened), UNAVAILABLE (reading failed);
  // both name the file.
  virtual absl::StatusOr<std::vector<int32_t>> Tokens(size_t sample) const = 0;
  // Whether tokens have other weights in the loss than 1 (PREFIX.weights).
  virtual bool has_weights() const { return false; }
  // Of the target's tokens: finite, at least 0; where the dataset has none, 1. `sample` < size().
  // Thread-safe. Possible errors: those of Tokens, INVALID_ARGUMENT (a broken .weights file).
  virtual absl::StatusOr<std::vector<float>> TargetWeights(size_t sample) const {
    return std::vector<float>(Length(sample).target, 1);
  }
};

}  // namespace penstock
