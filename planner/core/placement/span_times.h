// How long each context rank of a stage group takes so far, and the slowest of every aligned span of them.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <vector>

#include "planner/core/model/micro_batch.h"

namespace penstock::core {

class SpanTimes {
 public:
  // `contexts` is a power of two, as the ranks of all spans are, which begin at multiples of them.
  explicit SpanTimes(int contexts) : contexts_(contexts), slowest_(2 * static_cast<size_t>(contexts), 0) {}

  void Clear() { std::fill(slowest_.begin(), slowest_.end(), 0); }

  // Call Renew of a span that it is in before spans are asked for.
  void Set(int context, double time_ns) { slowest_[contexts_ + context] = time_ns; }
  void Renew(const Span& span) {
    int first = contexts_ + span.first;
    int last = first + span.ranks - 1;
    while (first > 1) {
      first /= 2;
      last /= 2;
      for (int node = first; node <= last; ++node)
        slowest_[node] = std::max(slowest_[2 * node], slowest_[2 * node + 1]);
    }
  }

  // Of the slowest rank of the span.
  double OfSpan(const Span& span) const { return slowest_[At(span)]; }
  // The first rank that no other is slower than.
  int SlowestRank() const {
    int node = 1;
    while (node < contexts_) node = 2 * node + (slowest_[2 * node] == slowest_[node] ? 0 : 1);
    return node - contexts_;
  }
  // Of the spans of so many ranks, the first whose slowest rank no other's is faster than.
  Span FastestSpan(int ranks) const {
    const int spans = contexts_ / ranks;
    const double* const times = &slowest_[spans];
    int best = 0;
    for (int span = 1; span < spans; ++span) {
      if (times[span] < times[best]) best = span;
    }
    return {best * ranks, ranks};
  }

 private:
  size_t At(const Span& span) const {
    return static_cast<size_t>(contexts_ + span.first) >> std::countr_zero(static_cast<unsigned>(span.ranks));
  }

  int contexts_;
  // A binary tree: of node n the slower one of 2 n and 2 n + 1; ranks begin at `contexts_`.
  std::vector<double> slowest_;
};

}  // namespace penstock::core
