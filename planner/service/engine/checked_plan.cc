#include "planner/service/engine/checked_plan.h"

#include "common/logging/logging.h"

namespace penstock {
namespace {

absl::Status MakeAndCheck(const BatchPlanner& planner, const PlanChecker& checker, const v1::Batch& batch,
                          core::StopToken stop, const SteadyClock& clock, v1::Plan* plan,
                          absl::Time* made_at) {
  absl::StatusOr<v1::Plan> made = planner.MakePlan(batch, stop);
  if (!made.ok()) return made.status();
  *plan = *std::move(made);
  if (made_at != nullptr) *made_at = clock.TimeOfDay();
  const absl::Status verdict = checker.Check(batch, *plan, stop);
  if (!verdict.ok() && !absl::IsCancelled(verdict)) {
    LogError("a plan breaks a rule and is thrown away", {{"job", plan->job_id()},
                                                         {"iteration", batch.iteration()},
                                                         {"violation", std::string(verdict.message())}});
  }
  return verdict;
}

}  // namespace

absl::StatusOr<v1::Plan> MakeCheckedPlan(const BatchPlanner& planner, const PlanChecker& checker,
                                         const v1::Batch& batch, core::StopToken stop,
                                         const SteadyClock& clock, EngineObserver& observer,
                                         absl::Time* made) {
  v1::Plan plan;
  const absl::Time start = clock.Now();
  const absl::Status status = MakeAndCheck(planner, checker, batch, stop, clock, &plan, made);
  const absl::Duration took = clock.Now() - start;
  plan.set_planning_time_ns(absl::ToInt64Nanoseconds(took));
  observer.OnPlanned(status, took);
  if (!status.ok()) return status;
  return plan;
}

}  // namespace penstock
