#include "planner/service/state/job_status.h"

#include <utility>

namespace penstock {

v1::JobState StateOf(const JobState& state) {
  if (state.finished()) return v1::JOB_STATE_FINISHED;
  if (!state.failure().empty()) return v1::JOB_STATE_FAILED;
  if (state.draining()) return v1::JOB_STATE_DRAINING;
  if (!state.is_prepared()) return v1::JOB_STATE_PREPARING;
  return state.membership().ready() ? v1::JOB_STATE_RUNNING : v1::JOB_STATE_REGISTERED;
}

v1::JobStatus StatusOf(const JobState& state) {
  v1::JobStatus status;
  status.set_job_id(state.spec().job_id());
  status.set_owner(state.spec().owner());
  status.set_state(StateOf(state));
  if (!state.finished()) status.set_failure(state.failure());
  status.set_epoch(state.membership().epoch());
  status.set_next_iteration(state.admission().next_iteration());
  status.set_planned_iteration(state.planned());
  status.set_completed_iteration(state.progress().completed());
  const v1::CostProfile& costs =
      state.LastCosts() != nullptr ? state.LastCosts()->profile() : state.spec().profile();
  *status.mutable_expert_loads() = costs.expert_loads();
  *status.mutable_slow_links() = costs.slow_links();
  status.set_costs_version(costs.version());
  if (state.LastCosts() != nullptr && state.LastCosts()->has_errors())
    *status.mutable_costs_errors() = state.LastCosts()->errors();
  for (v1::WorkerStatus& worker : state.membership().Workers()) {
    for (const v1::SlowRank& slow : costs.slow_ranks()) {
      if (slow.rank() == worker.rank()) worker.set_slow_factor(slow.factor());
    }
    worker.set_last_iteration(state.progress().last_reported(worker.rank()));
    *status.add_workers() = std::move(worker);
  }
  return status;
}

v1::GetJobResponse DescriptionOf(const JobState& state, uint64_t from_iteration) {
  v1::GetJobResponse response;
  *response.mutable_status() = StatusOf(state);
  *response.mutable_job() = state.spec();
  for (const v1::IterationSummary& summary : state.summaries()) {
    if (summary.iteration() >= from_iteration) *response.add_iterations() = summary;
  }
  return response;
}

}  // namespace penstock
