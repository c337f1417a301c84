#include "planner/core/comm/reductions_beside_passes.h"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace penstock::core {

void SetReduceDurations(const CostModel& costs, ProgramSet* programs) {
  if (!costs.has_gradient_buckets()) return;
  // By collective; of others it stands for nothing.
  std::vector<int64_t> shortest_ns(programs->collectives.size(), ReduceTime::kNoPass);
  const auto each = [&](const auto& visit) {
    for (int rank = 0; rank < programs->ranks(); ++rank)
      for (int32_t i = programs->rank_begin[rank]; i < programs->rank_begin[rank + 1]; ++i)
        visit(rank, programs->instructions[i]);
  };
  LastPasses passes;
  int of_rank = -1;
  each([&](int rank, const Instruction& instruction) {
    if (rank != of_rank) passes = LastPasses();
    of_rank = rank;
    if (IsPass(instruction.op)) passes.AddPass(instruction.stage, instruction.duration_ns);
    if (instruction.op != Op::kReduceGradients) return;
    int64_t& shortest = shortest_ns[instruction.joint];
    shortest = std::min(shortest, passes.TakeReduce(instruction.stage));
  });
  each([&](int rank, Instruction& instruction) {
    if (instruction.op != Op::kReduceGradients) return;
    const int tensor = costs.topology().PlaceOf(rank).tensor;
    instruction.duration_ns =
        costs.ReduceTimes(instruction.stage, tensor).LeftNs(shortest_ns[instruction.joint]);
  });
}

}  // namespace penstock::core
