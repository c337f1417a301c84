// How far a job is, and why it failed where it did: of its state and of its planners.
#pragma once

#include <string>

#include "penstock/v1/planner_service.pb.h"
#include "planner/service/engine/job_planners.h"

namespace penstock {

v1::JobState PhaseLocked(const JobRecord& record, const JobPlanners& planners)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
// Empty where nothing failed, or where the job is finished.
std::string FailureLocked(const JobRecord& record, const JobPlanners& planners)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);

}  // namespace penstock
