// Where a dataset under construction can be taken up again (IndexedDatasetWriter::Mark, OpenAt).
#pragma once

#include <cstdint>
#include <vector>

#include "common/dataset/partial_file.h"

namespace penstock {

struct TokenWeightsMark {
  uint64_t tokens = 0;
  // Whether there has been a weight other than 1; else nothing is written.
  bool begun = false;
  // Whether weights are written as they are, and not as codes of the distinct ones.
  bool wide = false;
  FileMark file = {};
  std::vector<float> distinct = {};

  bool operator==(const TokenWeightsMark&) const = default;
};

struct DatasetWriterMark {
  uint64_t sequences = 0;
  // Whether a token has come for which uint16 was too narrow.
  bool widened = false;
  FileMark data = {};
  FileMark lengths = {};
  TokenWeightsMark weights = {};

  bool operator==(const DatasetWriterMark&) const = default;
};

}  // namespace penstock
