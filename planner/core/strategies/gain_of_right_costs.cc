#include "planner/core/strategies/gain_of_right_costs.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "common/status/status_macros.h"
#include "planner/core/calibrate/calibrate.h"
#include "planner/core/calibrate/durations.h"
#include "planner/core/contract/batch_from_proto.h"
#include "planner/core/planner.h"
#include "planner/core/replay/program_set_of_plan.h"
#include "planner/core/simulate/simulator.h"

namespace penstock::core {
namespace {

// What a plan takes by the costs of a planner.
absl::StatusOr<double> TimeByCosts(const v1::Plan& plan, const v1::Batch& batch, const Planner& planner,
                                   StopToken stop) {
  PENSTOCK_ASSIGN_OR_RETURN(const Batch samples, BatchFromProto(batch, planner.job()));
  PENSTOCK_ASSIGN_OR_RETURN(ProgramSet programs, ProgramSetOfPlan(plan));
  PENSTOCK_RETURN_IF_ERROR(SetDurations(plan, samples, planner.costs(), &programs));
  Simulator simulator;
  PENSTOCK_RETURN_IF_ERROR(simulator.Run(programs, stop));
  return static_cast<double>(simulator.makespan_ns());
}

}  // namespace

absl::StatusOr<double> GainOfRightCosts(const v1::JobSpec& job, const v1::CostProfile& in_effect,
                                        absl::Span<const ObservedIteration> iterations,
                                        const RunTasks& run_tasks, StopToken stop) {
  if (job.strategies_size() > 1 || iterations.empty()) return 0;
  const v1::Topology& stages = iterations.front().plan->topology();
  // Stages are chosen as for the job itself, which takes its time.
  const auto planner_of = [&](const v1::JobSpec& spec, const v1::Topology* of_stages) {
    return Planner::Create(spec, Planner::Explain::kChanges, run_tasks, stop, of_stages);
  };
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<Planner> registered, planner_of(job, &stages));
  PENSTOCK_ASSIGN_OR_RETURN(const std::optional<Calibration> fitted,
                            Calibrate(*registered, in_effect, iterations, stop));
  if (!fitted.has_value()) return 0;
  v1::JobSpec right = job;
  *right.mutable_profile() = fitted->profile;
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<Planner> present, planner_of(right, &stages));
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<Planner> anew, planner_of(right, nullptr));
  double as_planned = 0, instead = 0;
  for (const ObservedIteration& iteration : iterations) {
    PENSTOCK_ASSIGN_OR_RETURN(const double present_ns,
                              TimeByCosts(*iteration.plan, *iteration.batch, *present, stop));
    PENSTOCK_ASSIGN_OR_RETURN(const v1::Plan plan, anew->MakePlan(*iteration.batch, run_tasks, stop));
    as_planned += present_ns;
    instead += static_cast<double>(plan.predicted().makespan_ns());
  }
  return std::max(0.0, 1 - instead / std::max(as_planned, 1.0));
}

}  // namespace penstock::core
