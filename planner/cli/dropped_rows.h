// Rows of tokens that experts had no room for (ModelSpec.expert_capacity_factor).
#pragma once

#include "penstock/v1/planner_service.pb.h"

namespace penstock::cli {

// Of an iteration, over all that tokens asked for; there are some.
inline double DroppedShare(const v1::IterationSummary& iteration) {
  return static_cast<double>(iteration.dropped_expert_rows()) /
         static_cast<double>(iteration.routed_expert_rows());
}

}  // namespace penstock::cli
