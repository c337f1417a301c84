#include "planner/core/cost/bottleneck_time.h"

#include <algorithm>

namespace penstock::core {
namespace {

RecomputeLevel LevelOf(RecomputeMode mode) {
  switch (mode) {
    case RecomputeMode::kFull:
      return kKeepInput;
    case RecomputeMode::kSelective:
      return kKeepSelective;
    case RecomputeMode::kNone:
    case RecomputeMode::kAuto:
      break;
  }
  return kKeepAll;
}

}  // namespace

bool BottleneckTime::Covers(const RankCounts& a, const RankCounts& b) {
  for (const LayerKind kind : kAllKinds)
    if (a.layers[kind] < b.layers[kind]) return false;
  return a.source_embeddings >= b.source_embeddings && a.target_embeddings >= b.target_embeddings;
}

BottleneckTime::BottleneckTime(const CostModel& costs, RecomputeMode mode)
    : costs_(&costs), level_(LevelOf(mode)) {
  for (const LayerKind kind : kAllKinds) {
    if (costs.profile().layers[kind].present) kinds_.push_back(kind);
  }
  std::vector<RankCounts> ranks(costs.positions());
  for (int index = 0; index < costs.stages(); ++index) {
    const Stage& stage = costs.stage(index);
    RankCounts& rank = ranks[costs.position_of(index)];
    for (const LayerKind kind : kAllKinds) rank.layers[kind] += stage.count(kind);
    rank.source_embeddings += stage.embeds_source ? 1 : 0;
    embeds_source_ = embeds_source_ || stage.embeds_source;
    rank.target_embeddings += stage.embeds_target ? 1 : 0;
  }
  for (const RankCounts& rank : ranks) {
    const auto covers = [&](const RankCounts& other) { return Covers(other, rank); };
    if (std::any_of(ranks_.begin(), ranks_.end(), covers)) continue;
    const auto covered = [&](const RankCounts& other) { return Covers(rank, other); };
    ranks_.erase(std::remove_if(ranks_.begin(), ranks_.end(), covered), ranks_.end());
    ranks_.push_back(rank);
  }
}

}  // namespace penstock::core
