// The best plan for a handful of samples, found by trying everything that the rules of a job allow: all ways
// to group samples into micro-batches, all assignments to replicas, all layouts, all placements on context
// ranks, all schedules and all recompute.
//
// Shares only the cost functions (CostModel) with the planner, and, if the exact account of memory is asked
// for, the way from an order of passes to times. See brute_force_schedule.h and brute_force_exact.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "planner/core/cost/cost_model.h"
#include "planner/core/model/types.h"
#include "tests/unit/core/brute_force_schedule.h"

namespace penstock::core {

// Later than any plan ends.
inline constexpr int64_t kForever = int64_t{1} << 55;

struct BruteForceOptions {
  // Looks for plans that end at this time or before.
  int64_t at_most_ns = 0;
  // Nodes of the search over schedules, over all groupings.
  int64_t nodes = 0;
  // Any plan is good enough.
  bool any = false;
  // What fits in memory, and when it ends, is what the exact timeline of that order of passes says
  // (brute_force_exact.h). Else see brute_force_schedule.h for what is forgotten: a bound from below.
  bool exact = false;
};

struct BruteForceAnswer {
  // False when the nodes ran out; the answer means nothing then.
  bool complete = true;
  // No plan ends by `at_most_ns`.
  bool found = false;
  int64_t makespan_ns = 0;
  // A replica has no sample though there are enough for all, which only limits of memory by rank allow.
  bool leaves_empty = false;
  // The micro-batches and the schedule of each replica, for people.
  std::string text;
};

// For jobs of POLICY_DYNAMIC with at most 6 samples, 4 ranks a pipeline and 4 stages. Any schedule family but
// 1F1B; that of INTERLEAVED and READY_FIRST is any order of whole backward passes. Of
// stage groups: where memory is plenty, not `exact`, and a bound from below where backward passes may be
// split.
BruteForceAnswer BruteForce(const CostModel& costs, const Job& job, absl::Span<const SampleTokens> samples,
                            const BruteForceOptions& options);

// The same for one stage a rank and the schedule "one forward, one backward", where memory allows it without
// recompute. Not complete where memory binds.
BruteForceAnswer BruteForceOneForwardOneBackward(const CostModel& costs, const Job& job,
                                                 absl::Span<const SampleTokens> samples, int64_t at_most_ns);

// One replica that runs the given packed micro-batches; the shapes are within the profile.
SmallPipeline MakePackedPipeline(const CostModel& costs, const Job& job,
                                 absl::Span<const SampleTokens> samples,
                                 const std::vector<std::vector<uint32_t>>& micro_batches);

// The makespan of one replica that runs the given packed micro-batches one forward, one backward, in this
// order, as if memory were plenty.
int64_t OneForwardOneBackwardMakespan(const CostModel& costs, const Job& job,
                                      absl::Span<const SampleTokens> samples,
                                      const std::vector<std::vector<uint32_t>>& micro_batches);

}  // namespace penstock::core
