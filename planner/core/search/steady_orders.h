// Orders of passes that noise hurts less, for micro-batches that stay as they are.
//
//   SteadyOrders(space, noise, run_tasks, &candidate);  // candidate.orders, and its makespans
//
// A list schedule for exact times takes whatever pass is ready first, if by a nanosecond; an order that was
// found so waits where that nanosecond comes out otherwise. So each replica is scheduled again as it would be
// in draws of the noise, and the orders that come of it are replayed, beside the one that it has, under other
// draws, the same for all.
#pragma once

#include "planner/core/parallel/run_tasks.h"
#include "planner/core/schedule/pass_noise.h"
#include "planner/core/search/candidate.h"

namespace penstock::core {

// What a plan may take for being steadier, of the fastest one that is known.
inline constexpr double kAboutAsLong = 1.01;

// What the longest of `replicas` that are alike takes in the mean, where one takes `makespans` (not empty),
// each as likely: their mean for one replica, the more of the long ones the more there are. Iterations end
// with the replica that ends last. Sorts them.
double MeanOfLongest(int replicas, absl::Span<int64_t> makespans);

// No replica takes longer than kAboutAsLong times the fastest candidate that is known (Candidate::fastest),
// or than it did; `candidate` can run; what each recomputes, and so
// what it holds, stays. `noise_seed`: NoiseSeed of the samples. `run_tasks` may use threads: the answer is
// the same.
void SteadyOrders(const ScheduleSpace& space, uint64_t noise_seed, const RunTasks& run_tasks,
                  Candidate* candidate);

}  // namespace penstock::core
