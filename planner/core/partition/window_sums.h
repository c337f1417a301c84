// What the windows of an order compute, in constant time each: the costs of contiguous_partition.h are
// functions of these.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "planner/core/model/micro_batch.h"

namespace penstock::core {

// Packed windows: differences of prefix sums, exact below 2^53.
class PackedWindows {
 public:
  PackedWindows(absl::Span<const uint32_t> order, absl::Span<const SampleTokens> tokens) {
    prefix_.reserve(order.size() + 1);
    prefix_.emplace_back();
    for (const uint32_t sample : order) {
      prefix_.push_back(prefix_.back());
      AddPacked(tokens[sample], &prefix_.back());
    }
  }

  TokenSums operator()(int first, int last) const {
    const TokenSums& before = prefix_[first];
    TokenSums sums = prefix_[last + 1];
    sums.rows -= before.rows;
    sums.source -= before.source;
    sums.target -= before.target;
    sums.source_square -= before.source_square;
    sums.target_square -= before.target_square;
    sums.cross -= before.cross;
    sums.loss -= before.loss;
    return sums;
  }

  // All samples in one micro-batch: no partition computes less.
  const TokenSums& all() const { return prefix_.back(); }

 private:
  std::vector<TokenSums> prefix_;
};

// Padded windows. To be asked for in the order that WindowTable asks: a window of one sample, then windows
// that grow to the left.
class PaddedWindows {
 public:
  PaddedWindows(absl::Span<const uint32_t> order, absl::Span<const SampleTokens> tokens) {
    samples_.reserve(order.size());
    for (const uint32_t sample : order) samples_.push_back(tokens[sample]);
  }

  TokenSums operator()(int first, int last) {
    if (first == last) rectangle_ = SampleTokens();
    const SampleTokens& sample = samples_[first];
    rectangle_.source = std::max(rectangle_.source, sample.source);
    if (sample.target > rectangle_.target) {
      rectangle_.target = sample.target;
      rectangle_.less_square = sample.less_square;
    }
    rectangle_.loss += sample.loss;
    return PaddedSums(last - first + 1, static_cast<int32_t>(rectangle_.source),
                      static_cast<int32_t>(rectangle_.target), rectangle_.loss, rectangle_.less_square);
  }

 private:
  std::vector<SampleTokens> samples_;
  // Longest of the window, and its loss positions.
  SampleTokens rectangle_;
};

}  // namespace penstock::core
