// How many layers of a stage are at which level of recompute.
#pragma once

#include <algorithm>

#include "planner/core/cost/profile.h"
#include "planner/core/model/types.h"
#include "planner/core/topology/stage.h"

namespace penstock::core {

// Layers of each kind at each level: the first `full`, the next `selective`, the rest; encoder layers come
// first.
struct LevelCounts {
  int counts[2][kRecomputeLevels] = {};
};

inline LevelCounts CountLevels(const Stage& stage, const StageRecompute& recompute) {
  LevelCounts result;
  const int sizes[2] = {stage.encoder_layers, stage.decoder_layers};
  int full = recompute.full;
  int selective = recompute.selective;
  for (int kind = 0; kind < 2; ++kind) {
    const int full_here = std::min(full, sizes[kind]);
    const int selective_here = std::min(selective, sizes[kind] - full_here);
    full -= full_here;
    selective -= selective_here;
    result.counts[kind][kKeepInput] = full_here;
    result.counts[kind][kKeepSelective] = selective_here;
    result.counts[kind][kKeepAll] = sizes[kind] - full_here - selective_here;
  }
  return result;
}

}  // namespace penstock::core
