#include "planner/core/diagnose/group_passes.h"

#include <algorithm>

namespace penstock::core {
namespace {

double WaitedNs(const Operation& pass) { return static_cast<double>(pass.duration_ns - pass.computed_ns); }

}  // namespace

GroupPasses::GroupPasses(const StepReplays& replays) : replays_(replays) {
  replays.ForPasses([&](size_t step, size_t, const Operation& pass) {
    if (pass.computed_ns > 0) groups_[KeyOf(step, pass)].push_back(&pass);
  });
}

GroupPasses::Key GroupPasses::KeyOf(size_t step, const Operation& pass) const {
  const TimelinePlace& place = replays_.timeline().places[pass.rank];
  return {step, place.named_replica(), place.stage, pass.kind, pass.model_stage, pass.micro_batch};
}

double GroupPasses::SavedNs(size_t step, size_t activity, int32_t rank, double factor) const {
  const Operation& pass = replays_.OperationOf(step, activity);
  const auto group = groups_.find(KeyOf(step, pass));
  if (group == groups_.end()) return 0;
  const auto slow = std::ranges::find(group->second, rank, &Operation::rank);
  if (slow == group->second.end()) return 0;
  const double own = static_cast<double>((*slow)->computed_ns) * (1 - 1 / factor);
  // Gradients of weights, say: nothing is exchanged.
  if (std::ranges::all_of(group->second, [](const Operation* one) { return WaitedNs(*one) <= 0; }))
    return pass.rank == rank ? own : 0;
  double saved = own;
  for (const Operation* const other : group->second) {
    if (other->rank != rank) saved = std::min(saved, WaitedNs(*other) - WaitedNs(**slow));
  }
  return std::max(0.0, saved);
}

}  // namespace penstock::core
