// Where the time of a timeline's steps went, and what mending each cause would bring.
//
// "What if" analysis by replay (Lin et al., "Understanding Stragglers in Large Model Training Using What-if
// Analysis", OSDI 2025): each step is played again with the times of one cause put right and all others as
// they were. Their ideal step has every pass at the mean of its kind and every transfer at the median.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/core/diagnose/timeline.h"

namespace penstock::core {

enum class CauseKind : uint8_t {
  // `rank` takes `factor` times as long as its peers for the same work.
  kSlowRank,
  // Micro-batches have unequal work: `factor` is the spread, one standard deviation.
  kUnequalWork,
  // Passes of the slowest stage, `stage`, take `factor` times the mean of all stages.
  kStageSplit,
  // Transfers from `rank` to `peer` take `factor` times as long as the others of their kind.
  kSlowLink,
  // Collectives of the ranks of `ring` take `factor` times as long as those that are called the same of other
  // rings: one of the links between them is slow, which of them nobody sees.
  kSlowRing,
  // `rank` begins steps later than the others.
  kLateStart,
  // The host of `rank` lets time pass between operations.
  kHostStalls,
  // Single passes of `rank` take far longer than others of the same work: `factor` of them in a step.
  kStalledPasses,
};

struct Cause {
  CauseKind kind = CauseKind::kSlowRank;
  int32_t rank = -1;
  int32_t peer = -1;
  // Ascending.
  std::vector<int32_t> ring = {};
  int32_t stage = -1;
  double factor = 1;
  // Half of the 95 % interval of `factor`, relative to it; 0 where there is none.
  double uncertainty = 0;
  // The share of the steps' time that would be saved.
  double gain = 0;
};

struct Diagnosis {
  // Means over the steps, nanoseconds.
  double measured_ns = 0;
  double ideal_ns = 0;
  // The mean over the steps of |replayed / measured - 1|.
  double replay_error = 0;
  // What passes took relative to what was foreseen, the median; 0 where nothing was.
  double foreseen_factor = 0;
  // Largest gain first. Nothing that gains less than 1 %, but every slow rank.
  std::vector<Cause> causes;

  double slowdown() const { return ideal_ns > 0 ? measured_ns / ideal_ns : 1; }
};

// Possible errors: INVALID_ARGUMENT (no steps; a step whose operations wait for each other in a circle).
absl::StatusOr<Diagnosis> Diagnose(const Timeline& timeline);

}  // namespace penstock::core
