#include "planner/core/partition/contiguous_partition.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace penstock::core {

WindowTable::WindowTable(int samples, double largest_bound, const WindowCost& cost) {
  begin_.reserve(samples + 1);
  for (int first = 0; first < samples; ++first) {
    begin_.push_back(costs_.size());
    for (int last = first; last < samples; ++last) {
      const double time = cost(first, last);
      if (!(time <= largest_bound)) break;
      costs_.push_back(time);
    }
  }
  begin_.push_back(costs_.size());
}

ContiguousPartition PartitionWithinBound(const WindowTable& windows, double bound) {
  const int samples = windows.samples();
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  // best[i]: smallest sum for samples 0..i-1; from[i]: where its last micro-batch begins.
  std::vector<double> best(samples + 1, kInfinite);
  std::vector<int> from(samples + 1, 0);
  best[0] = 0;
  for (int first = 0; first < samples; ++first) {
    if (best[first] == kInfinite) continue;
    const double* row = windows.row(first);
    const int size = windows.row_size(first);
    for (int length = 0; length < size && row[length] <= bound; ++length) {
      const double sum = best[first] + row[length];
      if (sum < best[first + length + 1]) {
        best[first + length + 1] = sum;
        from[first + length + 1] = first;
      }
    }
  }
  ContiguousPartition partition;
  if (best[samples] == kInfinite) return partition;
  partition.sum = best[samples];
  for (int end = samples; end > 0; end = from[end]) {
    partition.ends.push_back(end);
    partition.largest = std::max(partition.largest, windows.row(from[end])[end - from[end] - 1]);
  }
  std::reverse(partition.ends.begin(), partition.ends.end());
  return partition;
}

std::vector<double> CandidateBounds(const WindowTable& windows, int count) {
  double smallest = 0;
  double largest = 0;
  for (int first = 0; first < windows.samples(); ++first) {
    if (windows.row_size(first) == 0) return {};
    smallest = std::max(smallest, windows.row(first)[0]);
    largest = std::max(largest, windows.row(first)[windows.row_size(first) - 1]);
  }
  std::vector<double> bounds;
  for (int i = 0; i < count; ++i) {
    const double share = count == 1 ? 1.0 : static_cast<double>(i) / (count - 1);
    // Between the two ends, closer together near the smallest.
    bounds.push_back(smallest + (largest - smallest) * share * share);
  }
  bounds.erase(std::unique(bounds.begin(), bounds.end()), bounds.end());
  return bounds;
}

}  // namespace penstock::core
