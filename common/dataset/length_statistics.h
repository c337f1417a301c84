// The distribution of sample lengths: quantiles, and a histogram whose classes double.
//
//   LengthStatistics statistics = SummarizeLengths(lengths);
//   std::cout << statistics.quantiles[3].tokens;                 // the median
#pragma once

#include <cstdint>
#include <vector>

namespace penstock {

struct LengthQuantile {
  // 0 is the shortest, 1 the longest.
  double fraction = 0;
  uint32_t tokens = 0;
};

// Samples of `first` to `last` tokens, both included.
struct LengthClass {
  uint32_t first = 0;
  uint32_t last = 0;
  uint64_t samples = 0;
  uint64_t tokens = 0;
};

struct LengthStatistics {
  uint64_t samples = 0;
  uint64_t tokens = 0;
  double mean = 0;
  // At 0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99 and 1; empty without samples.
  std::vector<LengthQuantile> quantiles;
  // [1, 1], [2, 3], [4, 7], ...: from the class of the shortest to that of the longest, without gaps. Length
  // 0 is a class of its own.
  std::vector<LengthClass> histogram;
};

// A quantile is the length of the sample at rank ceil(fraction * samples) of the sorted lengths (nearest
// rank).
LengthStatistics SummarizeLengths(std::vector<uint32_t> lengths);

}  // namespace penstock
