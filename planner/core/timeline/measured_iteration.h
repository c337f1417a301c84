// A planned iteration, and what its ranks reported of it.
#pragma once

#include <vector>

#include "penstock/v1/cost_profile.pb.h"
#include "penstock/v1/plan.pb.h"
#include "penstock/v1/planner_service.pb.h"

namespace penstock::core {

// Nothing is owned.
struct MeasuredIteration {
  const v1::Plan* plan = nullptr;
  // Ranks may be missing.
  std::vector<const v1::ReportIterationRequest*> reports = {};
  // That the plan was made with; null: it names no slow ranks, or nobody knows.
  const v1::CostProfile* profile = nullptr;
};

}  // namespace penstock::core
