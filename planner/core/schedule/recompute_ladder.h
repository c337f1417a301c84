// Recompute of a stage as one number, so that searches can move it in small steps: level 0 keeps everything,
// every level moves one more layer, first to "attention is recomputed" (if profiled), then to "only the input
// is kept".
#pragma once

#include <cstdint>

#include "planner/core/model/types.h"

namespace penstock::core {

struct LevelRange {
  int32_t lowest = 0;
  int32_t highest = 0;
};

// The levels that a mode allows on a stage.
LevelRange RecomputeLevels(const Stage& stage, RecomputeMode mode, bool has_selective);

StageRecompute RecomputeAtLevel(const Stage& stage, int32_t level, bool has_selective);

}  // namespace penstock::core
