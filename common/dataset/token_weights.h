// Reads the weights of a dataset's tokens (weights_format.h). Used by IndexedDataset.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/dataset/data_file.h"

namespace penstock {

class TokenWeights {
 public:
  // Of PREFIX; nothing where its tokens have no weights. `index` is PREFIX.idx, `tokens` are those of
  // PREFIX.bin. Possible errors: INVALID_ARGUMENT (broken, or of another dataset than the one beside it: says
  // what to do), and those of reading.
  static absl::StatusOr<std::optional<TokenWeights>> Open(const std::string& prefix, const DataFile& index,
                                                          uint64_t tokens);

  // Of `count` tokens from the one at `first` on, both within the dataset. Thread-safe. Possible errors:
  // those of DataFile::Read, INVALID_ARGUMENT (a number that is no weight).
  absl::StatusOr<std::vector<float>> Read(uint64_t first, size_t count) const;

 private:
  TokenWeights(DataFile file, std::vector<float> distinct)
      : file_(std::move(file)), distinct_(std::move(distinct)) {}

  DataFile file_;
  // Empty: tokens have their weights as they are.
  std::vector<float> distinct_;
};

}  // namespace penstock
