// What all micro-batches of one size take, without making any of them.
//
// Those of about the same lengths are costed as one of their mean: lengths of a doubling fall into eight
// buckets, so that the error is some 0.01 % and the costs are those of a few dozen micro-batches, however
// large the batch is.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "planner/core/search/micro_batch_table.h"
#include "planner/core/search/schedule_space.h"

namespace penstock::core {

// Of the busiest rank of a pipeline that runs each micro-batch of the table once: their forward and backward
// passes. Infinite where one is outside of the profile.
double BusiestNs(const MicroBatchTable& table);

// Has all micro-batches of the table recompute that much on each stage.
void SetAllLevels(absl::Span<const int32_t> levels, MicroBatchTable* table);

class WorkOfSize {
 public:
  // `size` samples in order of arrival make a micro-batch. `space` must outlive it.
  WorkOfSize(const ScheduleSpace& space, absl::Span<const SampleTokens> tokens, int size, Layout layout)
      : WorkOfSize(space, BucketsOf(tokens, size, layout), size, layout) {}

  int size() const { return size_; }
  // A smaller one at the end counts as a part of one.
  double micro_batches() const;
  // BusiestNs of all of them, with this recompute of each stage.
  double BusiestAt(absl::Span<const int32_t> levels);
  // Of each of `replicas` that share them, with the least recompute: the work of a rank, and before it what
  // the quickest micro-batch takes to reach it. The slowest of the replicas has no shorter schedule.
  double LeastNs(int replicas) const;

 private:
  // Of each bucket: what the samples of its micro-batches are like, and how many micro-batches there are.
  struct Buckets {
    std::vector<SampleTokens> means;
    std::vector<double> times;
  };
  static Buckets BucketsOf(absl::Span<const SampleTokens> tokens, int size, Layout layout);
  WorkOfSize(const ScheduleSpace& space, Buckets buckets, int size, Layout layout);

  int size_;
  Buckets buckets_;
  // A slot for each bucket, with the least recompute until BusiestAt changes it.
  MicroBatchTable table_;
  // Of each rank, with the least recompute: all its work, and when the first micro-batch can be there.
  std::vector<double> work_ns_;
  std::vector<double> reached_ns_;
};

}  // namespace penstock::core
