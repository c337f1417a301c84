// Of candidates that take about as long, the one that noise lengthens least.
//
//   candidates = ...;  // the fastest of them, and others
//   return TakeSteadiest(space, noise, std::move(candidates), run_tasks);
//
// Every one runs its own passes in its own order under the same draws of noise (schedule/pass_noise.h), and
// the least mean of the iteration wins: what a run takes is the sum of its iterations.
#pragma once

#include <vector>

#include "planner/core/parallel/run_tasks.h"
#include "planner/core/schedule/pass_noise.h"
#include "planner/core/search/candidate.h"
#include "planner/core/search/steady_orders.h"

namespace penstock::core {

// The mean over draws 0 to `draws` - 1 of the replica that ends last, nanoseconds. At least kInfeasibleNs for
// a candidate that cannot run.
double MeanUnderNoise(const Candidate& candidate, const PassNoise& noise, int draws,
                      ReplicaEvaluator* evaluator);

// Of `candidates`, which are not empty, those that take at most kAboutAsLong times the fastest are looked at;
// of equals the earlier one is taken. `run_tasks` may use threads: the answer is the same.
Candidate TakeSteadiest(const ScheduleSpace& space, const PassNoise& noise, std::vector<Candidate> candidates,
                        const RunTasks& run_tasks);

}  // namespace penstock::core
