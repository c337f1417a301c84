#include "planner/core/plan_look.h"

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "common/status/status_macros.h"
#include "planner/core/contract/batch_from_proto.h"
#include "planner/core/foresee/foreseen_batch.h"

namespace penstock::core {

PlanLook::PlanLook(const Planner& planner, Batch batch, StopToken stop)
    : planner_(planner),
      batch_(std::move(batch)),
      stop_(stop),
      job_(AsForeseen(planner.job(), planner.costs(), batch_)),
      space_(planner.costs(), job_, AvailableBytes(job_, planner.costs()), Caution::kLittle, stop),
      look_(space_, job_, batch_.samples) {}

absl::StatusOr<int64_t> PlanLook::AtNs(Sight sight, const RunTasks& run_tasks) {
  const int64_t makespan = look_.At(sight, run_tasks);
  PENSTOCK_RETURN_IF_ERROR(stop_.status());
  if (makespan < kInfeasibleNs) return makespan;
  return absl::ResourceExhaustedError("no plan that fits in memory is seen at once");
}

absl::StatusOr<std::unique_ptr<PlanLook>> Planner::Look(const v1::Batch& proto, StopToken stop) const {
  PENSTOCK_ASSIGN_OR_RETURN(Batch batch, BatchFromProto(proto, job_));
  PENSTOCK_RETURN_IF_ERROR(CheckSamples(batch, stop));
  return std::unique_ptr<PlanLook>(new PlanLook(*this, std::move(batch), stop));
}

}  // namespace penstock::core
