// Where the time of a timeline's steps went, and what mending each cause would bring.
//
// "What if" analysis by replay (Lin et al., "Understanding Stragglers in Large Model Training Using What-if
// Analysis", OSDI 2025): each step is played again with the times of one cause put right and all others as
// they were. Their ideal step has every pass at the mean of its kind and every transfer at the median.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "planner/core/diagnose/cause.h"
#include "planner/core/diagnose/critical_path.h"
#include "planner/core/diagnose/rank_time.h"
#include "planner/core/diagnose/timeline.h"

namespace penstock::core {

struct Diagnosis {
  // Means over the steps, nanoseconds.
  double measured_ns = 0;
  double ideal_ns = 0;
  // The mean over the steps of |replayed / measured - 1|.
  double replay_error = 0;
  // What passes took relative to what was foreseen, the median; 0 where nothing was.
  double foreseen_factor = 0;
  // Largest gain first. Nothing that gains less than 1 %, but every slow rank, and wrong costs.
  std::vector<Cause> causes = {};
  // By rank.
  std::vector<MeasuredRankTime> ranks = {};
  CriticalPath critical_path = {};

  double slowdown() const { return ideal_ns > 0 ? measured_ns / ideal_ns : 1; }
};

// Possible errors: INVALID_ARGUMENT (no steps; a step whose operations wait for each other in a circle).
absl::StatusOr<Diagnosis> Diagnose(const Timeline& timeline);

// Wrong costs, if they are among the causes, gain so much: what right ones would bring takes other plans, of
// which a timeline knows nothing.
void SetGainOfRightCosts(double gain, Diagnosis& diagnosis);

}  // namespace penstock::core
