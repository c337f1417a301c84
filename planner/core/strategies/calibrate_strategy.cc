#include "planner/core/strategies/calibrate_strategy.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "common/mesh/mesh_ranks.h"
#include "common/status/status_macros.h"
#include "planner/core/calibrate/calibrate.h"
#include "planner/core/contract/passes.h"
#include "planner/core/contract/plan_of_mesh.h"
#include "planner/core/contract/ranks_of_profile.h"
#include "planner/core/strategies/mesh_planners.h"
#include "planner/core/strategies/strategy_specs.h"

namespace penstock::core {
namespace {

// When the rank's last pass ended, from the start of its iteration; 0 without any.
int64_t LastPassNs(const v1::Plan& plan, const v1::ReportIterationRequest& report) {
  const auto& instructions = plan.programs(static_cast<int>(report.rank())).instructions();
  int64_t last = 0;
  for (const v1::MeasuredInstruction& measured : report.instructions()) {
    if (measured.id() < static_cast<uint32_t>(instructions.size()) &&
        IsPass(instructions[static_cast<int>(measured.id())].op()))
      last = std::max(last, measured.start_ns() + measured.duration_ns());
  }
  return last;
}

bool Has(const MeshRange& range, uint32_t rank) {
  const auto number = static_cast<int64_t>(rank);
  return number >= range.first_rank && number < range.first_rank + range.ranks;
}

// The mesh whose passes end last, of all iterations together: the others wait for it.
int LastMesh(absl::Span<const ObservedIteration> iterations, int meshes) {
  std::vector<int64_t> ends(static_cast<size_t>(meshes));
  for (const ObservedIteration& iteration : iterations) {
    for (int mesh = 0; mesh < meshes; ++mesh) {
      const MeshRange own = RangeOfMesh(*iteration.plan, mesh);
      int64_t last = 0;
      for (const v1::ReportIterationRequest* report : iteration.reports)
        if (Has(own, report->rank())) last = std::max(last, LastPassNs(*iteration.plan, *report));
      ends[static_cast<size_t>(mesh)] += last;
    }
  }
  return static_cast<int>(std::ranges::max_element(ends) - ends.begin());
}

// Iterations as the ranks of one mesh saw them.
class IterationsOfMesh {
 public:
  IterationsOfMesh(absl::Span<const ObservedIteration> iterations, int mesh) {
    for (const ObservedIteration& iteration : iterations) {
      const MeshRange own = RangeOfMesh(*iteration.plan, mesh);
      ObservedIteration& one = observed_.emplace_back();
      one.batch = iteration.batch;
      one.plan = &plans_.emplace_back(PlanOfMesh(*iteration.plan, mesh));
      for (const v1::ReportIterationRequest* report : iteration.reports) {
        if (!Has(own, report->rank())) continue;
        v1::ReportIterationRequest& renumbered = reports_.emplace_back(*report);
        renumbered.set_rank(report->rank() - static_cast<uint32_t>(own.first_rank));
        one.reports.push_back(&renumbered);
      }
    }
  }

  absl::Span<const ObservedIteration> observed() const { return observed_; }

 private:
  // What is in them stays where it is.
  std::deque<v1::Plan> plans_;
  std::deque<v1::ReportIterationRequest> reports_;
  std::vector<ObservedIteration> observed_;
};

absl::Status CheckPlans(absl::Span<const ObservedIteration> iterations, int meshes, uint64_t ranks) {
  for (const ObservedIteration& iteration : iterations) {
    if (iteration.plan->meshes_size() != meshes || iteration.plan->programs_size() != static_cast<int>(ranks))
      return absl::InvalidArgumentError("plan.meshes: not those of the job's strategy");
    for (const v1::ReportIterationRequest* report : iteration.reports)
      if (report->rank() >= ranks) return absl::InvalidArgumentError("report.rank: the plan has fewer ranks");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::optional<Calibration>> CalibrateStrategy(const v1::JobSpec& job, int strategy,
                                                             const v1::Topology& stages,
                                                             const v1::CostProfile& in_effect,
                                                             absl::Span<const ObservedIteration> iterations,
                                                             const RunTasks& run_tasks, StopToken stop) {
  PENSTOCK_ASSIGN_OR_RETURN(
      const std::unique_ptr<MeshPlanners> planners,
      MeshPlanners::Create(job, strategy, Planner::Explain::kCauseAlone, run_tasks, stop, &stages));
  const int meshes = planners->meshes();
  if (meshes == 1) return Calibrate(planners->planner(0), in_effect, iterations, stop);
  if (iterations.empty()) return std::nullopt;
  PENSTOCK_RETURN_IF_ERROR(CheckPlans(iterations, meshes, RanksOf(job.strategies(strategy))));
  const int mesh = LastMesh(iterations, meshes);
  const MeshRange own = RangeOfMesh(*iterations.front().plan, mesh);
  v1::CostProfile of_mesh = in_effect;
  KeepRanks(own.first_rank, own.ranks, &of_mesh);
  const IterationsOfMesh seen(iterations, mesh);
  PENSTOCK_ASSIGN_OR_RETURN(std::optional<Calibration> fitted,
                            Calibrate(planners->planner(mesh), of_mesh, seen.observed(), stop));
  if (fitted.has_value()) ReturnRanks(own.first_rank, own.ranks, in_effect, &fitted->profile);
  return fitted;
}

}  // namespace penstock::core
