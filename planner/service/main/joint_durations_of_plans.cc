#include "planner/service/main/joint_durations_of_plans.h"

#include <utility>

#include "common/status/status_macros.h"

namespace penstock {
namespace {

// More than ranks are usually apart: those of the first iterations go.
constexpr size_t kMostKnown = 64;

absl::StatusOr<core::JointDurations> Make(const PackedPlan& plan, const core::CostModel& costs) {
  if (!core::HidesBesidePasses(costs)) return core::JointDurationsOf(plan.frame(), costs);
  PENSTOCK_ASSIGN_OR_RETURN(const v1::Plan whole, plan.Plan());
  return core::JointDurationsOf(whole, costs);
}

}  // namespace

JointDurationsPtr JointDurationsOfPlans::Find(const Key& key) {
  MutexLock lock(&mutex_);
  const auto found = known_.find(key);
  return found == known_.end() ? nullptr : found->second;
}

absl::StatusOr<JointDurationsPtr> JointDurationsOfPlans::Of(const PackedPlan& plan, int mesh,
                                                            const core::CostModel& costs) {
  const Key key = {plan.frame().iteration(), plan.frame().content_hash(), mesh};
  if (JointDurationsPtr known = Find(key); known != nullptr) return known;
  // Two ranks may make the same, side by side.
  PENSTOCK_ASSIGN_OR_RETURN(core::JointDurations made, Make(plan, costs));
  auto joint = std::make_shared<const core::JointDurations>(std::move(made));
  MutexLock lock(&mutex_);
  known_[key] = joint;
  if (known_.size() > kMostKnown) known_.erase(known_.begin());
  return joint;
}

}  // namespace penstock
