// Costs that were fitted to measurements, and what they are worth.
#pragma once

#include "penstock/v1/cost_profile.pb.h"

namespace penstock::core {

struct Calibration {
  v1::CostProfile profile;
  // Mean of |foretold - measured| / measured, of iterations the last ones counting most (recent_level.h):
  // with the costs that were in effect, and with these.
  double error_before = 0;
  double error_after = 0;
};

}  // namespace penstock::core
