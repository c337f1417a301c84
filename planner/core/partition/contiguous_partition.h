// Cuts an order of the samples into consecutive micro-batches, by dynamic programming.
//
// For a bound on the time of one micro-batch, PartitionWithinBound minimises the sum of their times; over the
// bounds, SearchPartitions minimises sum / replicas + (stages - 1) * largest, what a pipeline of equal stages
// takes (DynaPipe, Jiang et al., EuroSys 2024, section 4). What is changed: costs come from any function of a
// window, padded or packed; bounds are not scanned one by one but searched; and since that objective is a
// poor stand-in for a makespan when a replica has few micro-batches, all good partitions are handed out, to
// be judged by simulation.
//
//   const auto cost = [&](int first, int last) { return time_of(windows(first, last)); };
//   for (const ContiguousPartition& partition : SearchPartitions(samples, {.replicas = 4, .stages = 8},
//   cost)) ...
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "planner/core/parallel/stop.h"

namespace penstock::core {

// Costs of all windows of consecutive samples that are not above a bound, ready for many runs.
class WindowTable {
 public:
  // `cost(first, last)`: time of the window of samples first..last (inclusive); infinite when it cannot be a
  // micro-batch. Asked for each `last` in turn, with `first` going down from `last` until the bound is
  // passed,   // so that maxima can be kept along the way. Should not fall when the window grows; where it
  // does (measured times may), the largest value so far is used. A sample alone may be above the bound.
  // When `stop` has stopped it, samples are missing.
  template <typename Cost>
  WindowTable(int samples, double largest_bound, Cost cost, StopToken stop = {});

  int samples() const { return static_cast<int>(begin_.size()); }
  // The longest window that ends with `last` begins here; last + 1 when there is none.
  int begin(int last) const { return begin_[last]; }
  // Costs of the windows that end with `last` and start at begin(last), begin(last) + 1, ..., last:
  // descending.
  const double* column(int last) const { return costs_.data() + offset_[last]; }
  // Windows in all columns.
  int64_t windows() const { return static_cast<int64_t>(costs_.size()); }

 private:
  std::vector<int> begin_;
  std::vector<size_t> offset_;
  std::vector<double> costs_;
};

struct ContiguousPartition {
  // Last sample of each micro-batch plus one, ascending. Empty when a sample's own cost is infinite.
  std::vector<int> ends;
  double sum = 0;
  // Time of the largest micro-batch.
  double largest = 0;
};

// Minimises the sum of times with no micro-batch of several samples above `bound`, which is at most the
// table's. `scratch` is only there to be used again.
ContiguousPartition PartitionWithinBound(const WindowTable& windows, double bound,
                                         std::vector<double>* scratch);

struct PartitionSearch {
  int replicas = 1;
  int stages = 1;
  // What any partition's sum is at least, for leaving out bounds that cannot be good. Example: the time of
  // all samples in one packed micro-batch.
  double least_sum = 0;
  // Partitions with an objective up to this much above the best are wanted too.
  double slack = 0.1;
  // Bounds are at most this far, relative to each other, from all that could be better.
  double resolution = 1e-3;
  // Runs of the dynamic programme at most.
  int runs = 32;
  // Larger bounds are left out where they would need more windows than about twice so many for each sample:
  // there the bound is already many times what most samples take, and sharing overheads gains little more.
  int windows_per_sample = 64;
  // When it has stopped, what is found is of no worth.
  StopToken stop = {};

  double Objective(double sum, double largest) const { return sum / replicas + (stages - 1) * largest; }
  double Objective(const ContiguousPartition& partition) const {
    return Objective(partition.sum, partition.largest);
  }
};

// Different partitions, best objective first, then those of bounds below the cost of the largest sample,
// which stays alone: their objective is no better, but with few micro-batches a pipeline often is faster for
// it. Empty when a sample's own cost is infinite.
//
// Bounds are searched from the largest cost of a sample alone up to where the objective rises; it is taken to
// go on rising, because from then on the sum falls by less than the bound rises. The work: passes over the
// windows within twice the first bound, four times, ... until then, and at most `runs` passes over their
// costs. A window's samples are bounded by the bound, so this is linear in samples of one distribution.
template <typename Cost>
std::vector<ContiguousPartition> SearchPartitions(int samples, const PartitionSearch& search, Cost cost);

// The largest bound that can give an objective within the slack, after a partition with `objective` was
// found.
double LargestUsefulBound(const PartitionSearch& search, double objective);

// The same, over the windows of a table: bounds from `smallest` (the largest cost of a sample alone) to
// `largest`.
std::vector<ContiguousPartition> SearchBounds(const WindowTable& windows, double smallest, double largest,
                                              const PartitionSearch& search);

// Implementation of the templates.

template <typename Cost>
WindowTable::WindowTable(int samples, double largest_bound, Cost cost, StopToken stop) {
  begin_.reserve(samples);
  offset_.reserve(samples);
  for (int last = 0; last < samples && !stop.stopped(); ++last) {
    offset_.push_back(costs_.size());
    double time = 0;
    int first = last;
    for (; first >= 0; --first) {
      time = std::max(time, cost(first, last));
      const double bound = first == last ? std::numeric_limits<double>::max() : largest_bound;
      if (!(time <= bound)) break;
      costs_.push_back(time);
    }
    begin_.push_back(first + 1);
    std::reverse(costs_.begin() + static_cast<std::ptrdiff_t>(offset_.back()), costs_.end());
  }
}

template <typename Cost>
std::vector<ContiguousPartition> SearchPartitions(int samples, const PartitionSearch& search, Cost cost) {
  constexpr double kFirstReach = 2;
  constexpr double kLastReach = 16;
  // Above the best so far: the objective rises with the bound.
  constexpr double kRises = 1.02;
  double alone = 0;
  for (int sample = 0; sample < samples; ++sample) {
    if (search.stop.stopped()) return {};
    alone = std::max(alone, cost(sample, sample));
  }
  if (!(alone < std::numeric_limits<double>::infinity())) return {};
  std::vector<double> scratch;
  double best = std::numeric_limits<double>::infinity();
  for (double reach = kFirstReach;; reach *= 2) {
    const WindowTable windows(samples, reach * alone, cost, search.stop);
    for (const double bound : {alone, (1 + reach) / 2 * alone}) {
      if (search.stop.stopped()) return {};
      best = std::min(best, search.Objective(PartitionWithinBound(windows, bound, &scratch)));
    }
    if (search.stop.stopped()) return {};
    const double last = search.Objective(PartitionWithinBound(windows, reach * alone, &scratch));
    best = std::min(best, last);
    const double useful = LargestUsefulBound(search, best);
    const bool room = windows.windows() < int64_t{search.windows_per_sample} * samples;
    if (room && reach < kLastReach && reach * alone < useful && last <= best * kRises) continue;
    return SearchBounds(windows, alone, std::clamp(useful, alone, reach * alone), search);
  }
}

}  // namespace penstock::core
