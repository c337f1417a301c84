#include "planner/core/calibrate/training_factor.h"

#include "planner/core/calibrate/cost_factors.h"
#include "planner/core/calibrate/revise_profile.h"

namespace penstock::core {

v1::CostProfile WithTrainingFactor(const v1::CostProfile& profile, Architecture architecture, double factor) {
  CostFactors factors;
  factors.all = factor;
  v1::CostProfile trained = ReviseProfile(profile, architecture, factors);
  // No fit has told what of it is waiting.
  trained.set_waiting_share(profile.waiting_share());
  trained.set_version(profile.version());
  const double before = profile.training_factor() > 0 ? profile.training_factor() : 1;
  trained.set_training_factor(before * factor);
  return trained;
}

}  // namespace penstock::core
