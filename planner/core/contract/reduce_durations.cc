#include "planner/core/contract/reduce_durations.h"

#include <algorithm>

#include "planner/core/contract/passes.h"

namespace penstock::core {
namespace {

// How long buckets may run beside passes, on the rank that leaves them least.
std::vector<int64_t> ShortestPasses(const v1::Plan& plan, const CostModel& costs) {
  const int tensors = costs.group().tensor;
  std::vector<int64_t> shortest_ns(static_cast<size_t>(costs.stages()) * tensors, ReduceTime::kNoPass);
  for (const v1::Program& program : plan.programs()) {
    const int tensor = costs.topology().PlaceOf(static_cast<int>(program.rank())).tensor;
    LastPasses passes;
    for (const v1::Instruction& instruction : program.instructions()) {
      const auto stage = static_cast<int>(instruction.stage());
      if (IsPass(instruction.op())) passes.AddPass(stage, instruction.expected_duration_ns());
      if (instruction.op() != v1::OP_REDUCE_GRADIENTS) continue;
      int64_t& shortest = shortest_ns[stage * tensors + tensor];
      shortest = std::min(shortest, passes.TakeReduce(stage));
    }
  }
  return shortest_ns;
}

}  // namespace

std::vector<int64_t> ReduceDurationsOf(const v1::Plan& plan, const CostModel& costs) {
  std::vector<int64_t> durations;
  const int tensors = costs.group().tensor;
  const std::vector<int64_t> shortest_ns = costs.has_gradient_buckets()
                                               ? ShortestPasses(plan, costs)
                                               : std::vector<int64_t>(costs.stages() * tensors, 0);
  for (int stage = 0; stage < costs.stages(); ++stage) {
    for (int tensor = 0; tensor < tensors; ++tensor)
      durations.push_back(costs.ReduceTimes(stage, tensor).LeftNs(shortest_ns[stage * tensors + tensor]));
  }
  return durations;
}

}  // namespace penstock::core
