#include "planner/service/state/strategy_changes.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "common/mesh/mesh_ranks.h"

namespace penstock {
namespace {

// `later` in place of `earlier`, of which no iteration is of interest.
store::v1::StrategiesChanged Folded(store::v1::StrategiesChanged earlier,
                                    store::v1::StrategiesChanged later) {
  earlier.set_from_iteration(later.from_iteration());
  earlier.mutable_strategies()->Swap(later.mutable_strategies());
  earlier.mutable_added()->MergeFrom(later.added());
  earlier.mutable_added_topologies()->MergeFrom(later.added_topologies());
  if (later.typical_samples().empty()) return earlier;
  earlier.mutable_typical_samples()->Swap(later.mutable_typical_samples());
  earlier.set_typical_batch_size(later.typical_batch_size());
  return earlier;
}

StrategyChanges::Numbers NumbersIn(const store::v1::StrategiesChanged& change) {
  return {change.strategies().begin(), change.strategies().end()};
}

bool IsSameMeshOfStrategy(const v1::StrategyMesh& a, const v1::StrategyMesh& b) {
  const v1::Mesh& left = a.mesh();
  const v1::Mesh& right = b.mesh();
  return left.pipeline() == right.pipeline() && left.data() == right.data() &&
         TensorRanks(left) == TensorRanks(right) && ContextRanks(left) == ContextRanks(right) &&
         ExpertRanks(left) == ExpertRanks(right) &&
         std::ranges::equal(a.layers_per_stage(), b.layers_per_stage()) &&
         std::ranges::equal(a.rank_of_stage(), b.rank_of_stage());
}

}  // namespace

void StrategyChanges::Apply(const store::v1::StrategiesChanged& event) {
  if (!changes_.empty() && changes_.back().from_iteration() == event.from_iteration()) {
    changes_.back() = Folded(std::move(changes_.back()), event);
  } else {
    changes_.push_back(event);
  }
}

void StrategyChanges::ForgetBefore(uint64_t first_held) {
  while (changes_.size() > 1 && changes_[1].from_iteration() <= first_held) {
    changes_[1] = Folded(std::move(changes_[0]), std::move(changes_[1]));
    changes_.pop_front();
  }
}

StrategyChanges::Numbers StrategyChanges::AsRegistered() const {
  Numbers numbers(registered_);
  std::iota(numbers.begin(), numbers.end(), 0U);
  return numbers;
}

StrategyChanges::Numbers StrategyChanges::NumbersOf(uint64_t iteration) const {
  const auto after = std::ranges::upper_bound(changes_, iteration, {},
                                              [](const auto& change) { return change.from_iteration(); });
  return after == changes_.begin() ? AsRegistered() : NumbersIn(*std::prev(after));
}

StrategyChanges::Numbers StrategyChanges::now() const {
  return changes_.empty() ? AsRegistered() : NumbersIn(changes_.back());
}

std::set<StrategyChanges::Numbers> StrategyChanges::HeldFrom(uint64_t iteration) const {
  std::set<Numbers> held = {NumbersOf(iteration)};
  for (const store::v1::StrategiesChanged& change : changes_)
    if (change.from_iteration() > iteration) held.insert(NumbersIn(change));
  return held;
}

bool IsSameStrategy(const v1::Strategy& a, const v1::Strategy& b) {
  return std::ranges::equal(a.meshes(), b.meshes(), IsSameMeshOfStrategy);
}

WantedStrategies NumberStrategies(const google::protobuf::RepeatedPtrField<v1::Strategy>& known,
                                  const google::protobuf::RepeatedPtrField<v1::Strategy>& wanted) {
  std::vector<const v1::Strategy*> all;
  for (const v1::Strategy& strategy : known) all.push_back(&strategy);
  WantedStrategies found;
  for (const v1::Strategy& strategy : wanted) {
    const auto same = std::ranges::find_if(
        all, [&](const v1::Strategy* other) { return IsSameStrategy(strategy, *other); });
    found.numbers.push_back(static_cast<uint32_t>(same - all.begin()));
    if (same != all.end()) continue;
    all.push_back(&strategy);
    found.added.push_back(strategy);
  }
  return found;
}

}  // namespace penstock
