#include "planner/core/schedule/recompute_ladder.h"

namespace penstock::core {

LevelRange RecomputeLevels(const Stage& stage, RecomputeMode mode, bool has_selective) {
  const int32_t layers = stage.layers();
  const int32_t full = has_selective ? 2 * layers : layers;
  switch (mode) {
    case RecomputeMode::kNone:
      return {0, 0};
    case RecomputeMode::kSelective:
      return {layers, layers};
    case RecomputeMode::kFull:
      return {full, full};
    case RecomputeMode::kAuto:
      break;
  }
  return {0, full};
}

StageRecompute RecomputeAtLevel(const Stage& stage, int32_t level, bool has_selective) {
  const int32_t layers = stage.layers();
  if (!has_selective) return {0, level};
  if (level <= layers) return {level, 0};
  return {2 * layers - level, level - layers};
}

}  // namespace penstock::core
