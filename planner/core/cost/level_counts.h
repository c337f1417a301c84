// How many layers of a stage are at which level of recompute, and in which order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "planner/core/cost/profile.h"
#include "planner/core/model/types.h"
#include "planner/core/topology/stage.h"

namespace penstock::core {

// Layers of each kind at each level: the first `full`, the next `selective`, the rest.
struct LevelCounts {
  int counts[kStackKinds][kRecomputeLevels] = {};
};

inline LevelCounts CountLevels(const Stage& stage, const StageRecompute& recompute) {
  LevelCounts result;
  const int32_t full = std::min(recompute.full, stage.layers());
  const int32_t recomputed = std::min(recompute.full + recompute.selective, stage.layers());
  for (const LayerKind kind : kKindsOfStacks) {
    const int full_here = stage.count_below(kind, full);
    const int recomputed_here = stage.count_below(kind, recomputed);
    result.counts[kind][kKeepInput] = full_here;
    result.counts[kind][kKeepSelective] = recomputed_here - full_here;
    result.counts[kind][kKeepAll] = stage.count(kind) - recomputed_here;
  }
  return result;
}

// Layers of a decoder that follow each other and are alike.
struct LayerRun {
  LayerKind kind = kDecoder;
  RecomputeLevel level = kKeepAll;
  int32_t layers = 0;
};

// Of a GPT's stage, from the lowest up.
inline std::vector<LayerRun> RunsOf(const Stage& stage, const StageRecompute& recompute) {
  std::vector<LayerRun> runs;
  size_t next = 0;
  for (int32_t layer = 0; layer < stage.layers(); ++layer) {
    const bool dense = next < stage.dense.size() && stage.dense[next] == layer;
    if (dense) ++next;
    const LayerKind kind = dense ? kDense : kDecoder;
    const bool recomputed = layer < recompute.full + recompute.selective;
    const RecomputeLevel level =
        layer < recompute.full ? kKeepInput : (recomputed ? kKeepSelective : kKeepAll);
    if (runs.empty() || runs.back().kind != kind || runs.back().level != level)
      runs.push_back({.kind = kind, .level = level});
    ++runs.back().layers;
  }
  return runs;
}

}  // namespace penstock::core
