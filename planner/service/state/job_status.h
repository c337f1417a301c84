// What a job's events say of it, in the terms of the contract: all that a planner can tell that does not
// serve the job.
#pragma once

#include "penstock/v1/planner_service.pb.h"
#include "planner/service/state/job_state.h"

namespace penstock {

// PREPARING: the stages are not chosen yet. A planner that serves the job may be preparing it again.
v1::JobState StateOf(const JobState& state);

// Without what only the planner knows that serves the job: the age of heartbeats (0), failures of preparation
// and of the store.
v1::JobStatus StatusOf(const JobState& state);

// With the summaries of iterations from this one on.
v1::GetJobResponse DescriptionOf(const JobState& state, uint64_t from_iteration);

}  // namespace penstock
