#include "planner/cli/advise/run_pool.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "common/mesh/mesh_ranks.h"
#include "common/status/status_macros.h"
#include "planner/cli/advise/levers.h"
#include "planner/cli/advise/present_way.h"
#include "planner/cli/advise/side_by_side.h"
#include "planner/cli/plan_request.h"
#include "planner/cli/planning_flags.h"
#include "planner/cli/strategy_list.h"
#include "planner/cli/units.h"

namespace penstock::cli {
namespace {

absl::StatusOr<double> MeanPlanned(const v1::JobSpec& job, const std::vector<v1::Batch>& batches) {
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t sum_ns, PlannedNs(job, batches));
  return Milliseconds(sum_ns) / static_cast<double>(batches.size());
}

// What all strategies of a pool share, for lengths such as the run's.
v1::JobSpec BaseOf(const MeasuredRun& run) {
  v1::JobSpec base = WithParameterShares(WithFreeChoices(run.job));
  SetTypicalSamples(run.batches, &base);
  return base;
}

}  // namespace

absl::StatusOr<RunPoolAdvice> AdviseRunPool(const MeasuredRun& run, const Given& given, int strategies,
                                            TaskPool* threads) {
  RunPoolAdvice advice;
  const absl::StatusOr<double> present = MeanPlanned(run.job, run.batches);
  if (!present.ok()) return NameFlags(present.status());
  advice.present_ms = *present;
  v1::JobSpec job = BaseOf(run);
  PENSTOCK_ASSIGN_OR_RETURN(
      const std::vector<v1::Strategy> candidates,
      StrategiesToTry(job, static_cast<uint32_t>(RanksOf(run.job)), run.batches, given, threads));
  PENSTOCK_ASSIGN_OR_RETURN(advice.pool,
                            ProposePool(job, candidates, run.batches, {.strategies = strategies}, threads));
  SetStrategies(StrategiesOf(advice.pool), &job);
  PENSTOCK_ASSIGN_OR_RETURN(advice.pool_ms, MeanPlanned(job, run.batches));
  return advice;
}

}  // namespace penstock::cli
