// Where the time of each rank went.
#pragma once

#include <vector>

#include "planner/core/diagnose/step_graph.h"
#include "planner/core/diagnose/timeline.h"

namespace penstock::core {

// Shares of the step, which add up to 1 where nothing overlaps that a rank cannot do at once.
struct RankShares {
  double forward = 0;
  // Whole backward passes, and gradients of inputs alone.
  double backward = 0;
  // Gradients of weights alone.
  double weights = 0;
  // Optimizer steps, loading.
  double other = 0;
  // Inside passes of a stage group of several ranks: for the others of it, and for what they exchange. Where
  // nobody knows it apart from what the rank computed, it is part of the pass.
  double in_group = 0;
  // Transfers that it received and collectives, once all that take part had come, as far as it computed
  // nothing meanwhile.
  double exchange = 0;
  double batch_wait = 0;
  // Of its host, between operations that nothing held up.
  double host = 0;
  // For other ranks: what is left.
  double waiting = 0;

  double computing() const { return forward + backward + weights; }
};

struct MeasuredRankTime {
  int32_t rank = 0;
  // Means over the steps.
  RankShares shares;
  // Half of the 95 % interval of the mean share that it computes, by how steps differ; 0 of a single step.
  double computing_uncertainty = 0;
};

// By rank. `graphs`: of the timeline's steps.
std::vector<MeasuredRankTime> RankTimes(const Timeline& timeline, const std::vector<StepGraph>& graphs);

}  // namespace penstock::core
