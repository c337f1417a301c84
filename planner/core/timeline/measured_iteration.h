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
  // The first of its epoch: workers had just started, and their wait for a program is no feeder's.
  bool begins_epoch = false;
};

}  // namespace penstock::core
