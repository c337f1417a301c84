// Why steps take as long as they do.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace penstock::core {

enum class CauseKind : uint8_t {
  // `rank` takes `factor` times as long as its peers for the same work.
  kSlowRank,
  // Micro-batches have unequal work: `factor` is the spread, one standard deviation.
  kUnequalWork,
  // Passes of the slowest stage, `stage`, take `factor` times the mean of all stages.
  kStageSplit,
  // Transfers from `rank` to `peer`, or also back (`both_ways`), take `factor` times as long as the others of
  // their kind.
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
  // Ranks wait for the batches of steps.
  kLateBatches,
  // Others have the cores of the ranks of `ring` for part of the time that their passes take, which is
  // `factor` times as long as they compute.
  kSharedCores,
  // `subject` took `factor` times what was foreseen. What right costs would bring replay does not tell: it
  // takes other plans (SetGainOfRightCosts).
  kWrongCosts,
};

struct Cause {
  CauseKind kind = CauseKind::kSlowRank;
  int32_t rank = -1;
  int32_t peer = -1;
  bool both_ways = false;
  // Ascending.
  std::vector<int32_t> ring = {};
  int32_t stage = -1;
  double factor = 1;
  // What was foreseen wrongly, for people: "backward-weight of stage 1".
  std::string subject = {};
  // Half of the 95 % interval of `factor`, relative to it; 0 where there is none.
  double uncertainty = 0;
  // The share of the steps' time that would be saved.
  double gain = 0;
};

// A cause that gains less is not worth a line.
inline constexpr double kLeastShownGain = 0.01;

}  // namespace penstock::core
