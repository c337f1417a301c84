// The sizes of micro-batches that strict 1F1B would like best if work could be divided at will.
//
// A strict schedule has one order of passes, so its makespan is the longest path through a fixed graph. Where
// the times of a micro-batch are linear in its share of the work, the makespan is convex in the shares, and
// a longest path gives a subgradient: with each share it grows by what the path's passes of that micro-batch
// take for all the work. The least makespan is sought by subgradient steps of Polyak's length (Polyak 1969,
// "Minimization of unsmooth functionals") that multiply every share by a factor (to the first order the
// exponentiated gradient of Kivinen and Warmuth 1997): small micro-batches change little, and none is lost.
//
//   IdealSizes ideal = FindIdealSizes(stages, {{0.1, 0.3, 0.3, 0.2, 0.1}}, 1);
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "planner/core/parallel/stop.h"

namespace penstock::core {

// Nanoseconds that something takes for a micro-batch with a share of a replica's work.
struct LinearTime {
  double overhead = 0;
  // For a share of 1, on top of the overhead.
  double work = 0;

  double operator()(double share) const { return overhead + work * share; }
};

// One stage of a pipeline that has one on each rank.
struct LinearStage {
  LinearTime forward;
  LinearTime backward;
  // To the next stage; the way back takes as long.
  LinearTime transfer = {};
  // From the last pass to the end of the iteration.
  double end_ns = 0;
};

struct IdealSizes {
  // In the order in which micro-batches enter the pipeline; above 0, they add up to 1.
  std::vector<double> shares;
  double makespan_ns = 0;
};

// The best of the given shares: lists of the same length, each of which adds up to 1.
IdealSizes BestSizes(absl::Span<const LinearStage> stages, const std::vector<std::vector<double>>& shares,
                     StopToken stop = {});

// Begins with the best of `starts`. `largest`: no share is above it; at least 1 over the number of
// micro-batches. Takes a fixed number of steps, which end close to the least makespan (about a tenth of a
// percent), not at it. Where it is stopped, what it has is of no worth.
IdealSizes FindIdealSizes(absl::Span<const LinearStage> stages,
                          const std::vector<std::vector<double>>& starts, double largest,
                          StopToken stop = {});

}  // namespace penstock::core
