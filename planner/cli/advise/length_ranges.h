// The samples of some batches by length: ranges of lengths, each with one sample that stands for all of it.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "penstock/v1/plan.pb.h"

namespace penstock::cli {

struct LengthRanges {
  // One sample each, with the mean lengths of the range, the shortest range first.
  v1::Batch samples;
  // [batch][range]: how many of its samples are there.
  std::vector<std::vector<double>> counts;
  // Of all batches together, over their number.
  std::vector<double> mean_counts;
};

// At most `most` ranges, which grow with the length, up to the longest sample. Nothing without samples.
LengthRanges RangesOf(absl::Span<const v1::Batch> batches, int most);

}  // namespace penstock::cli
