#include "planner/core/stages/stage_balance.h"

#include <algorithm>
#include <tuple>

#include "planner/core/topology/stage_list.h"

namespace penstock::core {
namespace {

// What is lowered, most important first.
using Imbalance = std::tuple<int64_t, int64_t, double>;

// Of the ranks of a position, of all replicas, the most that one has above what it may.
int64_t BytesAbove(const CostModel& costs, const MemoryLimits& static_bytes, int position) {
  if (static_bytes.alike())
    return std::max<int64_t>(0, costs.RankStaticBytes(position) - static_bytes.common);
  int64_t above = 0;
  const Topology& topology = costs.topology();
  for (int replica = 0; replica < topology.replicas(); ++replica) {
    for (const int rank : topology.GroupAt(replica, position))
      above = std::max(above, costs.StaticBytesOfRank(rank) - static_bytes.Of(rank));
  }
  return above;
}

Imbalance Judge(const Profile& profile, const Job& job, const TokenSums& sums,
                const MemoryLimits& static_bytes, const StageLayout& layout) {
  const CostModel costs(profile, WithStages(job, layout));
  LayerCosts layers;
  costs.Layers(sums, &layers);
  int64_t above = 0;
  int64_t longest = 0;
  double squares = 0;
  const std::vector<int64_t> times = RankTimes(costs, layers);
  for (int rank = 0; rank < costs.positions(); ++rank) {
    above += BytesAbove(costs, static_bytes, rank);
    longest = std::max(longest, times[rank]);
    squares += static_cast<double>(times[rank]) * static_cast<double>(times[rank]);
  }
  return {above, longest, squares};
}

}  // namespace

bool MoveLayer(size_t from, size_t to, StageLayout* layout) {
  if (layout->layers[from] < 2) return false;
  --layout->layers[from];
  ++layout->layers[to];
  return true;
}

Job WithStages(const Job& job, const StageLayout& layout) {
  Job changed = job;
  PipelineShape shape = job.topology.shape();
  shape.stages = MakeStages(layout.layers, LayerOrderOf(shape.stages));
  shape.position_of_stage = layout.position_of_stage;
  changed.topology = job.topology.WithShape(shape);
  changed.stage_split_auto = false;
  return changed;
}

std::vector<int64_t> RankTimes(const CostModel& costs, const LayerCosts& layers) {
  std::vector<int64_t> times(costs.positions(), 0);
  for (int stage = 0; stage < costs.stages(); ++stage) {
    times[costs.position_of(stage)] += costs.ForwardNs(stage, layers) + costs.BackwardNs(stage, layers, {});
  }
  return times;
}

StageLayout BalanceStages(const Profile& profile, const Job& given, const TokenSums& sums,
                          const MemoryLimits& static_bytes, StageLayout layout, StopToken stop) {
  // What is judged is copied for every move.
  Job job = given;
  job.typical_samples.clear();
  Imbalance best = Judge(profile, job, sums, static_bytes, layout);
  const size_t stages = layout.layers.size();
  for (bool improved = true; improved && !stop.stopped();) {
    improved = false;
    StageLayout next = layout;
    for (size_t from = 0; from < stages; ++from) {
      for (size_t to = 0; to < stages; ++to) {
        if (stop.stopped()) return layout;
        StageLayout changed = layout;
        if (to == from || !MoveLayer(from, to, &changed)) continue;
        const Imbalance imbalance = Judge(profile, job, sums, static_bytes, changed);
        if (!(imbalance < best)) continue;
        best = imbalance;
        next = changed;
        improved = true;
      }
    }
    layout = next;
  }
  return layout;
}

}  // namespace penstock::core
