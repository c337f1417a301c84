#include "planner/core/fit/plan_forward.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "planner/core/schedule/list_scheduler.h"
#include "planner/core/simulate/memory_account.h"

namespace penstock::core {
namespace {

// Activations that may wait for a stage (PipelineCosts::forward_ahead): with two, one travels while the other
// is about to be computed; with one, where memory is short, a stage waits for each.
constexpr int32_t kAhead[] = {2, 1};

// Wave by wave: in the n-th one stage s runs micro-batch n - s, the upper stages first. What a pass waits
// for, its input and that the stage above has begun an earlier micro-batch, is in an earlier wave, or earlier
// in its own: so no ranks wait for each other in a circle, wherever the stages are.
std::vector<Pass> ForwardPasses(int stages, int micro_batches) {
  std::vector<Pass> passes;
  passes.reserve(static_cast<size_t>(stages) * micro_batches);
  for (int wave = 0; wave < stages + micro_batches - 1; ++wave) {
    for (int stage = std::min(stages - 1, wave); stage >= 0 && wave - stage < micro_batches; --stage)
      passes.push_back({PassKind::kForward, stage, wave - stage});
  }
  return passes;
}

void MakeForwardOnly(const CostModel& costs, ReplicaPipeline* pipeline) {
  const PipelineCosts& times = pipeline->costs;
  pipeline->passes =
      ByRank(ForwardPasses(times.stages, times.micro_batches), costs.position_of_stage(), costs.positions());
  // Nothing is kept, so that nothing is computed again.
  std::ranges::fill(pipeline->recompute, StageRecompute());
}

absl::Status CheckMemory(const ProgramSet& programs, const MemoryLimits& limits) {
  for (int rank = 0; rank < programs.ranks(); ++rank) {
    const int64_t peak = AccountMemory(programs, rank).peak_bytes;
    if (peak <= limits.Of(rank)) continue;
    return absl::ResourceExhaustedError(absl::StrCat("its forward passes alone do not fit: rank ", rank,
                                                     " needs ", peak, " bytes, limit ", limits.Of(rank)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<FittedPlan> PlanForward(const CostModel& costs, const Job& job,
                                       absl::Span<const SampleTokens> samples, const RunTasks& run_tasks,
                                       StopToken stop) {
  PENSTOCK_ASSIGN_OR_RETURN(FittedPlan plan, PlanInMemory(costs, job, samples, run_tasks, stop));
  for (ReplicaPipeline& pipeline : plan.pipelines) MakeForwardOnly(costs, &pipeline);
  absl::Status fits;
  for (const int32_t ahead : kAhead) {
    for (ReplicaPipeline& pipeline : plan.pipelines) pipeline.costs.forward_ahead = ahead;
    PENSTOCK_ASSIGN_OR_RETURN(plan.programs, BuildPrograms(costs, plan.pipelines, stop));
    fits = CheckMemory(plan.programs, job.memory_limits);
    if (fits.ok()) return plan;
  }
  return fits;
}

}  // namespace penstock::core
