// What ranks do together in the plans that are being delivered, of which each rank is told its own part.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "common/compact/packed_plan.h"
#include "common/sync/sync.h"
#include "planner/core/calibrate/durations.h"
#include "planner/core/cost/cost_model.h"

namespace penstock {

using JointDurationsPtr = std::shared_ptr<const core::JointDurations>;

// Thread-safe. Keeps those of some plans: all ranks ask for each, and unpacking it takes as long as it has
// instructions.
class JointDurationsOfPlans {
 public:
  // By the passes of all ranks, where these hide anything. `costs`: of the mesh of the plan, always the same.
  // Possible errors: those of PackedPlan::Plan and core::JointDurationsOf.
  absl::StatusOr<JointDurationsPtr> Of(const PackedPlan& plan, int mesh, const core::CostModel& costs);

 private:
  // Iteration, content hash and mesh.
  using Key = std::tuple<uint64_t, std::string, int>;

  JointDurationsPtr Find(const Key& key);

  Mutex mutex_;
  std::map<Key, JointDurationsPtr> known_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace penstock
