// Passes of a pipeline whose times are given, without regard to memory, for tests and benchmarks.
#pragma once

#include <cstdint>
#include <utility>

#include "planner/core/schedule/list_scheduler.h"
#include "planner/core/schedule/pipeline.h"
#include "tests/support/small_replica.h"

namespace penstock::core {

struct ListedPasses {
  RankPasses passes;
  int64_t makespan_ns = 0;
};

// `rules`: ahead, split, forward_first and eager_weights may be left empty.
inline ListedPasses ListPasses(const PipelineCosts& costs, ScheduleRules rules) {
  SmallReplica replica(costs.position_of_stage, costs.positions, costs.micro_batches);
  replica.forward = costs.forward_ns;
  replica.backward = costs.backward_ns;
  replica.weight = costs.weight_ns;
  replica.transfer = costs.transfer_ns;
  const ScheduleRules defaults = std::exchange(replica.rules, std::move(rules));
  if (replica.rules.ahead.empty()) replica.rules.ahead = defaults.ahead;
  if (replica.rules.split.empty()) replica.rules.split = defaults.split;
  if (replica.rules.forward_first.empty()) replica.rules.forward_first = defaults.forward_first;
  if (replica.rules.eager_weights.empty()) replica.rules.eager_weights = defaults.eager_weights;
  ListedPasses listed;
  listed.makespan_ns = replica.Schedule();
  listed.passes = ByRank(replica.order, costs.position_of_stage, costs.positions);
  return listed;
}

// One forward, one backward; one stage a rank.
inline ListedPasses ListOneForwardOneBackward(const PipelineCosts& costs) {
  ScheduleRules rules;
  rules.one_forward_one_backward = true;
  for (int stage = 0; stage < costs.stages; ++stage) rules.ahead.push_back(costs.stages - stage);
  return ListPasses(costs, rules);
}

}  // namespace penstock::core
