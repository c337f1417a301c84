// Dynamic programme over an order of the samples: cuts it into consecutive micro-batches.
//
// For a bound on the time of one micro-batch it minimises the sum of their times (DynaPipe, Jiang et al.,
// EuroSys 2024, section 4). Costs come as a table of windows, so the programme itself only adds and compares.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace penstock::core {

// Time of the window of samples first..last (inclusive) of the order; infinite when it cannot be a
// micro-batch. Must not fall when the window grows by a sample on the right.
using WindowCost = std::function<double(int first, int last)>;

// Costs of all windows that are not above the largest bound, ready for many bounds.
class WindowTable {
 public:
  // Windows above `largest_bound` are left out.
  WindowTable(int samples, double largest_bound, const WindowCost& cost);

  int samples() const { return static_cast<int>(begin_.size()) - 1; }
  // Costs of the windows that start at `first`: one sample, two samples, ...
  const double* row(int first) const { return costs_.data() + begin_[first]; }
  int row_size(int first) const { return static_cast<int>(begin_[first + 1] - begin_[first]); }
  // Entries in all rows.
  int64_t windows() const { return static_cast<int64_t>(costs_.size()); }

 private:
  std::vector<size_t> begin_;
  std::vector<double> costs_;
};

struct ContiguousPartition {
  // Last sample of each micro-batch plus one, ascending. Empty when the bound cannot be kept.
  std::vector<int> ends;
  double sum = 0;
  double largest = 0;
};

// Minimises the sum of times with no micro-batch above `bound`.
ContiguousPartition PartitionWithinBound(const WindowTable& windows, double bound);

// Bounds worth trying for an objective sum / replicas + (stages - 1) * bound: from the smallest one that can
// be kept, in at most `count` steps, closer together near the smallest, up to the largest window.
std::vector<double> CandidateBounds(const WindowTable& windows, int count);

}  // namespace penstock::core
