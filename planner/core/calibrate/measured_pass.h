// What a pass took that a rank ran.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/core/model/micro_batch.h"
#include "planner/core/model/types.h"

namespace penstock::core {

enum class MeasuredKind : uint8_t {
  kForward,
  // As a whole: the sum of both parts where it was run in two.
  kBackward,
  // The part of it that makes gradients of weights.
  kBackwardWeight,
};

// Ranks of a stage group wait for each other inside passes.
enum class PassesOf : uint8_t {
  // What groups of ranks took.
  kGroups,
  // What each rank computed, without its waiting.
  kRanks,
};

struct MeasuredPass {
  MeasuredKind kind = MeasuredKind::kForward;
  // -1: nobody says which.
  int rank = -1;
  // Counts the iterations that were measured together.
  int iteration = 0;
  int stage = 0;
  // Of its rank's share of the micro-batch.
  TokenSums sums;
  StageRecompute recompute;
  // Without what ranks exchange inside the pass, and without waiting for them; with what the host took behind
  // it (time_beside_passes.h).
  double duration_ns = 0;
  // Of it.
  double host_ns = 0;
  // Of passes of groups of several context ranks: what each of these has to do, in units of what this rank
  // has. The group took as long as the one that was last. Empty: nobody says.
  std::vector<double> context_work = {};
};

}  // namespace penstock::core
