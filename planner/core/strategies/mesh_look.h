// What the plan of a strategy is about to take: PlanLook, of all its meshes, as samples are given to them
// first.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/core/parallel/run_tasks.h"
#include "planner/core/plan_look.h"
#include "planner/core/search/sight.h"

namespace penstock::core {

class MeshLook {
 public:
  int64_t BoundNs() const { return bound_ns_; }

  // See PlanLook.
  absl::StatusOr<int64_t> AtNs(Sight sight, const RunTasks& run_tasks);

 private:
  friend class MeshPlanners;
  MeshLook(int64_t bound_ns, std::vector<std::unique_ptr<PlanLook>> looks)
      : bound_ns_(bound_ns), looks_(std::move(looks)) {}

  int64_t bound_ns_;
  // Of the meshes that have samples.
  std::vector<std::unique_ptr<PlanLook>> looks_;
};

}  // namespace penstock::core
