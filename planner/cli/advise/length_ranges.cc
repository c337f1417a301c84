#include "planner/cli/advise/length_ranges.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace penstock::cli {
namespace {

// From the longest sample down, each range ends where the next longer one begins, at its end over this. The
// last one has all that are shorter, which add little.
constexpr double kGrowth = 1.4;

uint64_t TokensOf(const v1::Sample& sample) {
  return uint64_t{sample.input_tokens()} + sample.target_tokens();
}

struct RangeSums {
  double samples = 0;
  double input_tokens = 0;
  double target_tokens = 0;
};

// Counted from the longest one.
int RangeOf(uint64_t tokens, uint64_t longest, int most) {
  if (tokens == 0) return most - 1;
  const double below = std::log(static_cast<double>(longest) / static_cast<double>(tokens));
  return std::clamp(static_cast<int>(below / std::log(kGrowth)), 0, most - 1);
}

v1::Sample MeanSample(const RangeSums& sums) {
  v1::Sample sample;
  sample.set_input_tokens(static_cast<uint32_t>(std::lround(sums.input_tokens / sums.samples)));
  sample.set_target_tokens(static_cast<uint32_t>(std::lround(sums.target_tokens / sums.samples)));
  return sample;
}

}  // namespace

LengthRanges RangesOf(absl::Span<const v1::Batch> batches, int most) {
  uint64_t longest = 0;
  for (const v1::Batch& batch : batches)
    for (const v1::Sample& sample : batch.samples()) longest = std::max(longest, TokensOf(sample));
  std::vector<RangeSums> sums(most);
  std::vector<std::vector<double>> counts(batches.size(), std::vector<double>(most, 0));
  for (size_t i = 0; i < batches.size(); ++i) {
    for (const v1::Sample& sample : batches[i].samples()) {
      const int range = RangeOf(TokensOf(sample), longest, most);
      ++counts[i][range];
      ++sums[range].samples;
      sums[range].input_tokens += sample.input_tokens();
      sums[range].target_tokens += sample.target_tokens();
    }
  }
  LengthRanges ranges;
  ranges.counts.resize(batches.size());
  for (int range = most; range-- > 0;) {
    if (sums[range].samples == 0) continue;
    *ranges.samples.add_samples() = MeanSample(sums[range]);
    ranges.mean_counts.push_back(sums[range].samples / static_cast<double>(batches.size()));
    for (size_t i = 0; i < batches.size(); ++i) ranges.counts[i].push_back(counts[i][range]);
  }
  return ranges;
}

}  // namespace penstock::cli
