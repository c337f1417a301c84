// What the page shows of jobs, as JSON: messages of the planner service in protobuf's JSON, with their own
// field names, without what the page does not show (a cost profile is larger than all the rest).
#pragma once

#include <string>

#include "planner/service/engine/engine.h"

namespace penstock {

// ListJobsResponse, without the workers of each job.
std::string JobsAsJson(const PlannerEngine& engine);

// {"job": GetJobResponse with the last iterations, "history": HistoryAsJson}.
std::string JobAsJson(const Job& job);

}  // namespace penstock
