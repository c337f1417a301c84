#include "planner/service/engine/job_phase.h"

namespace penstock {

v1::JobState PhaseLocked(const JobRecord& record, const JobPlanners& planners) {
  const JobState& state = record.state();
  if (state.finished()) return v1::JOB_STATE_FINISHED;
  if (!state.failure().empty() || !planners.failure().ok()) return v1::JOB_STATE_FAILED;
  if (state.draining()) return v1::JOB_STATE_DRAINING;
  if (!planners.AreThereLocked()) return v1::JOB_STATE_PREPARING;
  return state.membership().ready() ? v1::JOB_STATE_RUNNING : v1::JOB_STATE_REGISTERED;
}

std::string FailureLocked(const JobRecord& record, const JobPlanners& planners) {
  if (record.state().finished()) return std::string();
  return planners.failure().ok() ? record.state().failure() : planners.failure().ToString();
}

}  // namespace penstock
