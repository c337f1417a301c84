// Plans of given micro-batches on a mix of schemes: what they take by the costs, schedule, simulator and
// closed forms that Penstock's own plans go by. The micro-batches of a replica enter its pipeline in the
// order in which they are given; layers are recomputed where memory asks for it.
//
//   PENSTOCK_ASSIGN_OR_RETURN(const MixPlanner planner, MixPlanner::Create(job, schemes, mix));
//   PENSTOCK_ASSIGN_OR_RETURN(const v1::Plan plan, planner.Plan(batch, replicas));
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "penstock/v1/job.pb.h"
#include "penstock/v1/plan.pb.h"
#include "planner/core/planner.h"
#include "planner/core/strategies/mesh_planners.h"
#include "tests/bench/strategies/hydraulis/assignment.h"
#include "tests/bench/strategies/hydraulis/scheme.h"

namespace penstock::hydraulis {

// As one mesh: micro-batches of each of its replicas. Without samples its ranks bring parameters and
// gradients, and step. Possible errors: RESOURCE_EXHAUSTED (they do not fit in memory), INVALID_ARGUMENT (the
// batch is malformed).
absl::StatusOr<v1::Plan> PlanOnMesh(const core::Planner& planner, const v1::Batch& batch,
                                    const std::vector<MicroBatches>& replicas);

// "dp 2 x tp 4 + pp 4 x tp 2".
v1::Strategy StrategyOf(absl::Span<const Scheme> schemes, const Mix& mix);

class MixPlanner {
 public:
  // `job`: model, profile and planning, with shares of parameters. Possible errors: INVALID_ARGUMENT (the
  // mix does not fit in memory).
  static absl::StatusOr<MixPlanner> Create(const v1::JobSpec& job, absl::Span<const Scheme> schemes,
                                           const Mix& mix);

  // Of all samples of the batch, proven by the checker. Possible errors: as PlanOnMesh; INTERNAL (the plan
  // breaks a rule).
  absl::StatusOr<v1::Plan> Plan(const v1::Batch& batch, absl::Span<const PackedReplica> replicas) const;

 private:
  MixPlanner(v1::JobSpec job, std::unique_ptr<core::MeshPlanners> planners)
      : job_(std::move(job)), planners_(std::move(planners)) {}

  v1::JobSpec job_;
  std::unique_ptr<core::MeshPlanners> planners_;
};

}  // namespace penstock::hydraulis
