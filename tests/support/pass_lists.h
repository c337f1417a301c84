// Passes of a pipeline whose times are given, without regard to memory, for tests and benchmarks.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/core/schedule/list_scheduler.h"
#include "planner/core/schedule/pipeline.h"

namespace penstock::core {

struct ListedPasses {
  RankPasses passes;
  int64_t makespan_ns = 0;
};

// `rules`: ahead, split, forward_first and eager_weights may be left empty.
inline ListedPasses ListPasses(const PipelineCosts& costs, ScheduleRules rules) {
  const std::vector<int64_t> nothing(costs.forward_ns.size() + costs.stages, 0);
  const std::vector<int64_t> memory(costs.ranks, 1);
  std::vector<int32_t> rows;
  for (int m = 0; m < costs.micro_batches; ++m) rows.push_back(m * costs.stages);
  const std::vector<const int64_t*> transfers(costs.stages, costs.transfer_ns.data());
  PassTable table;
  table.stages = costs.stages;
  table.ranks = costs.ranks;
  table.rows = rows;
  table.forward_ns = costs.forward_ns.data();
  table.backward_ns = costs.backward_ns.data();
  table.weight_ns = costs.weight_ns.data();
  table.transfer_ns = transfers.data();
  table.input_bytes = nothing.data();
  table.held_bytes = nothing.data();
  table.put_aside_bytes = nothing.data();
  table.passing_bytes = nothing.data();
  table.available_bytes = memory.data();
  table.reduce_ns = nothing.data();
  const std::vector<int64_t> no_steps(costs.ranks, 0);
  table.optimizer_ns = no_steps.data();
  if (rules.ahead.empty()) rules.ahead.assign(costs.stages, costs.micro_batches);
  for (auto* flags : {&rules.split, &rules.forward_first, &rules.eager_weights}) {
    if (flags->empty()) flags->assign(costs.ranks, 0);
  }
  ListedPasses listed;
  std::vector<Pass> order;
  listed.makespan_ns =
      ListScheduler(costs.rank_of_stage, costs.ranks).Run(table, rules, kInfeasibleNs, &order);
  listed.passes = ByRank(order, costs.rank_of_stage, costs.ranks);
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
