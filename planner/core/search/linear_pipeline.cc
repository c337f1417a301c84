#include "planner/core/search/linear_pipeline.h"

#include <algorithm>
#include <cstdint>

namespace penstock::core {
namespace {

// Through what two micro-batches take: one with `share`, and one with half of it.
LinearTime Line(double share, int64_t whole_ns, int64_t half_ns) {
  const auto of_half = static_cast<double>(whole_ns - half_ns);
  return {.overhead = std::max(0.0, static_cast<double>(half_ns) - of_half), .work = 2 * of_half / share};
}

}  // namespace

TokenSums ShareOf(const TokenSums& all, double share) {
  TokenSums sums = all;
  sums.rows = std::max(1, static_cast<int32_t>(all.rows * share));
  for (double* sum :
       {&sums.source, &sums.target, &sums.source_square, &sums.target_square, &sums.cross, &sums.loss}) {
    *sum *= share;
  }
  return sums;
}

LinearPipeline MakeLinear(const ScheduleSpace& space, const TokenSums& replica, int micro_batches) {
  const CostModel& costs = space.costs();
  const double share = 1.0 / micro_batches;
  const TokenSums all = costs.EvenShare(replica);
  const TokenSums whole = ShareOf(all, share);
  const TokenSums half = ShareOf(all, share / 2);
  LayerCosts whole_layers;
  LayerCosts half_layers;
  costs.Layers(whole, &whole_layers);
  costs.Layers(half, &half_layers);
  const std::vector<int32_t> lowest = space.LowestLevels();
  LinearPipeline pipeline;
  for (int stage = 0; stage < costs.stages(); ++stage) {
    const int rank = costs.position_of(stage);
    const StageRecompute recompute =
        RecomputeAtLevel(costs.stage(stage), lowest[stage], costs.has_selective());
    LinearStage& line = pipeline.stages.emplace_back();
    line.forward = Line(share, costs.ForwardNs(stage, whole_layers), costs.ForwardNs(stage, half_layers));
    line.backward = Line(share, costs.BackwardNs(stage, whole_layers, recompute),
                         costs.BackwardNs(stage, half_layers, recompute));
    if (stage + 1 < costs.stages()) {
      const auto transfer = [&](const TokenSums& sums) {
        return costs.LinkNs(costs.BoundaryBytes(stage, sums), costs.LinkAcross(space.topology(), 0, stage));
      };
      line.transfer = Line(share, transfer(whole), transfer(half));
    }
    line.end_ns = static_cast<double>(space.reduce_ns()[stage] + space.optimizer_ns()[rank]);
    const StageMemory memory = costs.Memory(stage, all);
    const double needed = static_cast<double>(HeldBytes(costs, stage, memory, recompute)) *
                              std::min(micro_batches, space.Depth(stage)) +
                          static_cast<double>(PassingBytes(memory, space.buffers()));
    pipeline.largest_share =
        std::min(pipeline.largest_share, static_cast<double>(space.room().LeastAt(rank)) / needed);
  }
  return pipeline;
}

}  // namespace penstock::core
