// What the micro-batches of a plan cost in a layer, and so what its passes take, by other costs than those
// that it was planned with.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "penstock/v1/plan.pb.h"
#include "planner/core/cost/cost_model.h"
#include "planner/core/program/program_set.h"

namespace penstock::core {

class PlanLayers {
 public:
  // Of all replicas, or of one alone. `costs`: of the job that the plan is of; both must outlive it. Possible
  // errors: INVALID_ARGUMENT (a sample that the batch lacks, or a shape outside of the profile).
  static absl::StatusOr<PlanLayers> OfPlan(const v1::Plan& plan, const Batch& batch, const CostModel& costs);
  static absl::StatusOr<PlanLayers> OfReplica(const v1::Plan& plan, const Batch& batch,
                                              const CostModel& costs, int replica);

  // What a pass takes on a context rank alone, nanoseconds.
  int64_t OwnNs(int replica, Op pass, int micro_batch, int stage, int context) const;
  // A group takes as long as its slowest rank.
  int64_t PassNs(int replica, Op pass, int micro_batch, int stage) const;

 private:
  PlanLayers(const v1::Plan& plan, const CostModel& costs)
      : plan_(&plan), costs_(&costs), layers_(plan.replicas_size()) {}
  absl::Status Read(const Batch& batch, int replica);

  const v1::Plan* plan_;
  const CostModel* costs_;
  // By replica, micro-batch and context rank.
  std::vector<std::vector<std::vector<LayerCosts>>> layers_;
};

}  // namespace penstock::core
