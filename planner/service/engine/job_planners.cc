#include "planner/service/engine/job_planners.h"

#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace penstock {

void JobPlanners::PrepareLocked(Prepared planners) {
  registered_ = std::move(planners.registered);
  revised_ = std::move(planners.revised);
  newest_ = registered_.at(record_.state().strategies().now());
}

void JobPlanners::ReviseCostsLocked(uint64_t version, const StrategyChanges::Numbers& strategies,
                                    BatchPlannerPtr planner) {
  ForgetOldLocked();
  revised_[{version, strategies}] = std::move(planner);
}

void JobPlanners::ChangeStrategiesLocked(const StrategyChanges::Numbers& strategies,
                                         BatchPlannerPtr registered, BatchPlannerPtr revised,
                                         uint64_t costs_version) {
  ForgetOldLocked();
  newest_ = std::move(registered);
  registered_[strategies] = newest_;
  if (revised != nullptr) revised_[{costs_version, strategies}] = std::move(revised);
}

void JobPlanners::ForgetOldLocked() {
  const uint64_t first = record_.state().first_held();
  const std::set<StrategyChanges::Numbers> held = record_.state().strategies().HeldFrom(first);
  std::erase_if(registered_, [&](const auto& planner) { return !held.contains(planner.first); });
  const store::v1::CostsRevised* const oldest = record_.state().CostsOf(first);
  const uint64_t version = oldest == nullptr ? 0 : oldest->profile().version();
  std::erase_if(revised_, [&](const auto& planner) {
    return planner.first.first < version || !held.contains(planner.first.second);
  });
}

absl::Status JobPlanners::CheckPreparedLocked() const {
  if (newest_ != nullptr) return absl::OkStatus();
  if (!failure_.ok()) return failure_;
  return absl::UnavailableError(absl::StrCat(
      "job '", record_.id(), "' is being prepared (its stages are chosen); try again in a moment"));
}

NewestPlanners JobPlanners::NewestLocked() const {
  const auto revised =
      revised_.find({record_.CostsInEffectLocked().version(), record_.state().strategies().now()});
  return {.registered = newest_, .in_effect = revised == revised_.end() ? nullptr : revised->second};
}

BatchPlannerPtr JobPlanners::RegisteredLocked(uint64_t iteration) const {
  const auto found = registered_.find(record_.state().strategies().NumbersOf(iteration));
  return found != registered_.end() ? found->second : newest_;
}

absl::StatusOr<BatchPlannerPtr> JobPlanners::Of(uint64_t iteration, core::StopToken stop) {
  StrategyChanges::Numbers strategies;
  v1::JobSpec spec;
  std::vector<v1::Topology> topologies;
  {
    JobLock lock(record_.mutex());
    PENSTOCK_RETURN_IF_ERROR(CheckPreparedLocked());
    strategies = record_.state().strategies().NumbersOf(iteration);
    const store::v1::CostsRevised* const costs = record_.state().CostsOf(iteration);
    if (costs == nullptr) {
      const auto found = registered_.find(strategies);
      if (found != registered_.end()) return found->second;
    } else {
      const auto found = revised_.find({costs->profile().version(), strategies});
      if (found != revised_.end()) return found->second;
    }
    spec = record_.SpecLocked(record_.CostsOfLocked(iteration));
    topologies = record_.state().topologies();
  }
  const uint64_t version = spec.profile().version();
  const bool revised = version != record_.spec().profile().version();
  PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<BatchPlanner> made,
                            record_.services().planners->Create(spec, topologies, strategies, stop));
  JobLock lock(record_.mutex());
  if (!revised) return registered_.try_emplace(strategies, std::move(made)).first->second;
  return revised_.try_emplace({version, strategies}, std::move(made)).first->second;
}

}  // namespace penstock
