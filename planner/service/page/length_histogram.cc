#include "planner/service/page/length_histogram.h"

#include <algorithm>
#include <array>
#include <bit>
#include <iterator>

namespace penstock {

std::vector<LengthBucket> LengthHistogram(const v1::Batch& batch) {
  // By the number of bits of the length.
  constexpr size_t kBits = 65;
  std::array<LengthBucket, kBits> all = {};
  for (size_t bits = 1; bits < kBits; ++bits) {
    all[bits].from = uint64_t{1} << (bits - 1);
    all[bits].to = all[bits].from + (all[bits].from - 1);
  }
  for (const v1::Sample& sample : batch.samples()) {
    const uint64_t tokens = uint64_t{sample.input_tokens()} + sample.target_tokens();
    LengthBucket& bucket = all[static_cast<size_t>(std::bit_width(tokens))];
    ++bucket.samples;
    bucket.tokens += tokens;
  }
  const auto used = [](const LengthBucket& bucket) { return bucket.samples > 0; };
  const auto first = std::find_if(all.begin(), all.end(), used);
  const auto last = std::find_if(all.rbegin(), all.rend(), used);
  if (first == all.end()) return {};
  return {first, last.base()};
}

}  // namespace penstock
