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
  const auto set = [&](LayerKind kind, int full_here, int recomputed_here, int layers) {
    result.counts[kind][kKeepInput] = full_here;
    result.counts[kind][kKeepSelective] = recomputed_here - full_here;
    result.counts[kind][kKeepAll] = layers - recomputed_here;
  };
  const int full_encoders = std::min(full, stage.encoder_layers);
  const int recomputed_encoders = std::min(recomputed, stage.encoder_layers);
  set(kEncoder, full_encoders, recomputed_encoders, stage.encoder_layers);
  // Searches ask again and again, and nearly all stages have none.
  const bool some_dense = !stage.dense.empty();
  const int full_dense = some_dense ? stage.count_below(kDense, full) : 0;
  const int recomputed_dense = some_dense ? stage.count_below(kDense, recomputed) : 0;
  if (some_dense) set(kDense, full_dense, recomputed_dense, stage.count(kDense));
  set(kDecoder, full - full_encoders - full_dense, recomputed - recomputed_encoders - recomputed_dense,
      stage.count(kDecoder));
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
