#include "planner/core/comm/reductions_beside_passes.h"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace penstock::core {

void SetReduceDurations(const CostModel& costs, ProgramSet* programs) {
  if (!costs.has_gradient_buckets()) return;
  // By collective; of others it stands for nothing.
  std::vector<int64_t> shortest_ns(programs->collectives.size(), ReduceTime::kNoPass);
  for (int rank = 0; rank < programs->ranks(); ++rank) {
    LastPasses passes;
    for (int32_t i = programs->rank_begin[rank]; i < programs->rank_begin[rank + 1]; ++i) {
      const Instruction& instruction = programs->instructions[i];
      if (IsPass(instruction.op)) passes.AddPass(instruction.stage, instruction.duration_ns);
      if (instruction.op != Op::kReduceGradients) continue;
      int64_t& shortest = shortest_ns[instruction.joint];
      shortest = std::min(shortest, passes.TakeReduce(instruction.stage));
    }
  }
  for (int rank = 0; rank < programs->ranks(); ++rank) {
    const int tensor = costs.topology().PlaceOf(rank).tensor;
    for (int32_t i = programs->rank_begin[rank]; i < programs->rank_begin[rank + 1]; ++i) {
      Instruction& instruction = programs->instructions[i];
      if (instruction.op != Op::kReduceGradients) continue;
      instruction.duration_ns =
          costs.ReduceTimes(instruction.stage, tensor).LeftNs(shortest_ns[instruction.joint]);
    }
  }
}

}  // namespace penstock::core
