// LocalSearch: the changes that it tries.
#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "planner/core/search/local_search.h"

namespace penstock::core {
namespace {

// Of a hundred changes, those of the replica that ends last.
constexpr uint32_t kCriticalPercent = 75;
// Samples that move together at most.
constexpr uint32_t kMostMoved = 6;
// All of more micro-batches than that are never in flight at once.
constexpr size_t kFewMicroBatches = 8;
// So few that finding their order anew is as cheap as anything.
constexpr size_t kVeryFewMicroBatches = 4;

}  // namespace

int LocalSearch::CriticalReplica() const {
  const auto& replicas = candidate_->replicas;
  const auto last = std::max_element(replicas.begin(), replicas.end(),
                                     [](const auto& a, const auto& b) { return a.makespan < b.makespan; });
  return static_cast<int>(last - replicas.begin());
}

int LocalSearch::PartnerOf(int replica) {
  const auto replicas = static_cast<uint32_t>(candidate_->replicas.size());
  return replicas > 1 && random_.Below(2) == 0 ? static_cast<int>(random_.Below(replicas)) : replica;
}

int32_t LocalSearch::RandomSlot(int replica, uint32_t* position) {
  const std::vector<int32_t>& slots = candidate_->replicas[replica].slots;
  const uint32_t at = random_.Below(static_cast<uint32_t>(slots.size()));
  if (position != nullptr) *position = at;
  return slots[at];
}

void LocalSearch::TakeRandom(uint32_t count, std::vector<uint32_t>& from, std::vector<uint32_t>& to) {
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t index = random_.Below(static_cast<uint32_t>(from.size()));
    to.push_back(from[index]);
    from[index] = from.back();
    from.pop_back();
  }
}

bool LocalSearch::MoveSamples(int from_replica, int to_replica) {
  const int32_t from_slot = RandomSlot(from_replica);
  const int32_t to_slot = RandomSlot(to_replica);
  std::vector<uint32_t>& from = candidate_->table.samples(from_slot);
  std::vector<uint32_t>& to = candidate_->table.samples(to_slot);
  if (from_slot == to_slot || from.size() < 2) return false;
  SaveSlot(from_slot);
  SaveSlot(to_slot);
  const uint32_t most = std::min(kMostMoved, static_cast<uint32_t>(from.size()) - 1);
  const uint32_t count = 1 + random_.Below(1 + random_.Below(most));
  TakeRandom(count, from, to);
  candidate_->table.Update(from_slot);
  candidate_->table.Update(to_slot);
  return true;
}

bool LocalSearch::SwapSamples(int from_replica, int to_replica) {
  const int32_t from_slot = RandomSlot(from_replica);
  const int32_t to_slot = RandomSlot(to_replica);
  if (from_slot == to_slot) return false;
  SaveSlot(from_slot);
  SaveSlot(to_slot);
  std::vector<uint32_t>& from = candidate_->table.samples(from_slot);
  std::vector<uint32_t>& to = candidate_->table.samples(to_slot);
  // Drawn one after the other: the order in which arguments are evaluated is the compiler's.
  uint32_t& other = to[random_.Below(static_cast<uint32_t>(to.size()))];
  uint32_t& one = from[random_.Below(static_cast<uint32_t>(from.size()))];
  std::swap(one, other);
  candidate_->table.Update(from_slot);
  candidate_->table.Update(to_slot);
  return true;
}

bool LocalSearch::SplitMicroBatch(int replica) {
  uint32_t position = 0;
  const int32_t slot = RandomSlot(replica, &position);
  MicroBatchTable& table = candidate_->table;
  if (table.samples(slot).size() < 2) return false;
  SaveSlot(slot);
  if (free_slots_.empty()) {
    taken_slot_ = table.Add({}, table.layout(slot));
    best_samples_.emplace_back();
    const absl::Span<const int32_t> levels = table.levels(slot);
    best_levels_.emplace_back(levels.begin(), levels.end());
    dirty_slots_.push_back(0);
  } else {
    taken_slot_ = free_slots_.back();
    free_slots_.pop_back();
  }
  std::vector<uint32_t>& from = table.samples(slot);
  std::vector<uint32_t>& to = table.samples(taken_slot_);
  to.clear();
  const absl::Span<const int32_t> levels = table.levels(slot);
  std::copy(levels.begin(), levels.end(), table.levels(taken_slot_).begin());
  const uint32_t count = 1 + random_.Below(static_cast<uint32_t>(from.size()) - 1);
  TakeRandom(count, from, to);
  candidate_->replicas[replica].rules.backward_order.clear();
  std::vector<int32_t>& slots = candidate_->replicas[replica].slots;
  slots.insert(slots.begin() + position + random_.Below(2), taken_slot_);
  table.SetReplica(taken_slot_, replica);
  candidate_->table.Update(slot);
  candidate_->table.Update(taken_slot_);
  return true;
}

bool LocalSearch::MergeMicroBatch(int replica) {
  std::vector<int32_t>& slots = candidate_->replicas[replica].slots;
  uint32_t position = 0;
  const int32_t slot = RandomSlot(replica, &position);
  const int32_t into = RandomSlot(replica);
  if (slot == into) return false;
  SaveSlot(slot);
  SaveSlot(into);
  MicroBatchTable& table = candidate_->table;
  const std::vector<uint32_t>& from = table.samples(slot);
  std::vector<uint32_t>& to = table.samples(into);
  to.insert(to.end(), from.begin(), from.end());
  table.samples(slot).clear();
  slots.erase(slots.begin() + position);
  candidate_->replicas[replica].rules.backward_order.clear();
  freed_slot_ = slot;
  candidate_->table.Update(into);
  return true;
}

bool LocalSearch::Reorder(int replica) {
  std::vector<int32_t>& slots = candidate_->replicas[replica].slots;
  const auto size = static_cast<uint32_t>(slots.size());
  const uint32_t from = random_.Below(size);
  const uint32_t to = random_.Below(size);
  if (from == to) return false;
  if (random_.Below(2) == 0) {
    std::swap(slots[from], slots[to]);
  } else if (from < to) {
    std::rotate(slots.begin() + from, slots.begin() + from + 1, slots.begin() + to + 1);
  } else {
    std::rotate(slots.begin() + to, slots.begin() + from, slots.begin() + from + 1);
  }
  return true;
}

bool LocalSearch::SwapMicroBatches(int from_replica, int to_replica) {
  uint32_t from = 0;
  uint32_t to = 0;
  const int32_t from_slot = RandomSlot(from_replica, &from);
  const int32_t to_slot = RandomSlot(to_replica, &to);
  SaveSlot(from_slot);
  SaveSlot(to_slot);
  candidate_->replicas[from_replica].slots[from] = to_slot;
  candidate_->replicas[to_replica].slots[to] = from_slot;
  candidate_->table.SetReplica(to_slot, from_replica);
  candidate_->table.SetReplica(from_slot, to_replica);
  candidate_->table.Update(to_slot);
  candidate_->table.Update(from_slot);
  return true;
}

bool LocalSearch::MoveMicroBatch(int from_replica, int to_replica) {
  std::vector<int32_t>& from = candidate_->replicas[from_replica].slots;
  std::vector<int32_t>& to = candidate_->replicas[to_replica].slots;
  if (from.size() < 2) return false;
  uint32_t position = 0;
  const int32_t slot = RandomSlot(from_replica, &position);
  SaveSlot(slot);
  from.erase(from.begin() + position);
  for (const int replica : {from_replica, to_replica}) {
    candidate_->replicas[replica].rules.backward_order.clear();
  }
  to.insert(to.begin() + random_.Below(static_cast<uint32_t>(to.size()) + 1), slot);
  candidate_->table.SetReplica(slot, to_replica);
  candidate_->table.Update(slot);
  return true;
}

bool LocalSearch::ChangeLevel(int replica) {
  const CandidateReplica& part = candidate_->replicas[replica];
  MicroBatchTable& table = candidate_->table;
  const ScheduleSpace& space = evaluator_->space();
  const auto stage = static_cast<int>(random_.Below(static_cast<uint32_t>(space.costs().stages())));
  const LevelRange& range = space.levels(stage);
  if (range.lowest == range.highest) return false;
  int32_t step = 1 << random_.Below(3);
  if (random_.Below(2) == 0) step = -step;
  const bool all = random_.Below(2) == 0;
  const int32_t one = RandomSlot(replica);
  for (const int32_t slot : part.slots) {
    if (!all && slot != one) continue;
    const int32_t before = table.levels(slot)[stage];
    const int32_t level = std::clamp(before + step, range.lowest, range.highest);
    if (level == before) continue;
    SaveSlot(slot);
    table.UpdateLevel(slot, stage, level);
  }
  return saved_slot_count_ > 0;
}

bool LocalSearch::ChangeAhead(int replica) {
  CandidateReplica& part = candidate_->replicas[replica];
  std::vector<int32_t>& ahead = part.rules.ahead;
  int32_t& value = ahead[random_.Below(static_cast<uint32_t>(ahead.size()))];
  const auto most = static_cast<int32_t>(part.slots.size());
  const int32_t changed = std::clamp(std::min(value, most) + (random_.Below(2) == 0 ? 1 : -1), 1, most);
  if (changed == value) return false;
  value = changed;
  return true;
}

bool LocalSearch::ChangeBackwardOrder(int replica) {
  CandidateReplica& part = candidate_->replicas[replica];
  const auto count = static_cast<uint32_t>(part.slots.size());
  if (count < 2) return false;
  std::vector<int32_t>& order = part.rules.backward_order;
  if (order.empty()) {
    order.resize(count);
    std::iota(order.begin(), order.end(), 0);
  }
  const uint32_t at = random_.Below(count - 1);
  std::swap(order[at], order[at + 1]);
  return true;
}

bool LocalSearch::TurnBackwardOrder(int replica) {
  CandidateReplica& part = candidate_->replicas[replica];
  if (part.slots.size() < 2 || part.slots.size() > kFewMicroBatches) return false;
  if (random_.Below(2) == 0) std::reverse(part.slots.begin(), part.slots.end());
  std::vector<int32_t>& order = part.rules.backward_order;
  order.resize(part.slots.size());
  std::iota(order.rbegin(), order.rend(), 0);
  MicroBatchTable& table = candidate_->table;
  const std::vector<int32_t> levels = evaluator_->space().FitLevelsForAll(table, part.slots, replica);
  for (const int32_t slot : part.slots) {
    SaveSlot(slot);
    std::copy(levels.begin(), levels.end(), table.levels(slot).begin());
    table.Update(slot);
  }
  return true;
}

bool LocalSearch::ResetFlags(int replica) {
  CandidateReplica& part = candidate_->replicas[replica];
  const FittedRules fitted = evaluator_->space().Fit(candidate_->table, part.slots, replica);
  part.rules.split = fitted.rules.split;
  part.rules.forward_first = fitted.rules.forward_first;
  part.rules.eager_weights = fitted.rules.eager_weights;
  part.rules.backward_order.clear();
  return true;
}

bool LocalSearch::Flip(std::vector<char>& flags) {
  char& value = flags[random_.Below(static_cast<uint32_t>(flags.size()))];
  value = value == 0 ? 1 : 0;
  return true;
}

bool LocalSearch::Change() {
  const int critical =
      random_.Below(100) < kCriticalPercent
          ? CriticalReplica()
          : static_cast<int>(random_.Below(static_cast<uint32_t>(candidate_->replicas.size())));
  if (candidate_->replicas[critical].slots.empty()) return false;
  int from = critical;
  int to = PartnerOf(critical);
  if (candidate_->replicas[to].slots.empty()) return false;
  SaveReplica(from);
  if (to != from) SaveReplica(to);
  if (random_.Below(2) == 0) std::swap(from, to);
  // Of a hundred changes. Those that keep the order of passes are several times cheaper to judge.
  const uint32_t kind = random_.Below(100);
  keeps_order_ = kind < 86 && (candidate_->replicas[critical].slots.size() > kVeryFewMicroBatches ||
                               random_.Below(2) == 0);
  if (kind < 45) return MoveSamples(from, to);
  if (kind < 70) return SwapSamples(from, to);
  if (kind < 81) return from == to ? Reorder(from) : SwapMicroBatches(from, to);
  if (kind < 89) return ChangeLevel(critical);
  if (kind < 91) return from == to ? Reorder(from) : MoveMicroBatch(from, to);
  if (kind < 93) return SplitMicroBatch(critical);
  if (kind < 95) return MergeMicroBatch(critical);
  if (evaluator_->space().is_strict()) return false;
  // With one micro-batch at a time there is no other order, nor a stage that runs ahead.
  if (kind < 97 && evaluator_->space().one_at_a_time()) return false;
  if (kind < 96) return ChangeAhead(critical);
  if (kind < 97) {
    return random_.Below(2) == 0 ? ChangeBackwardOrder(critical) : TurnBackwardOrder(critical);
  }
  ScheduleRules& rules = candidate_->replicas[critical].rules;
  if (random_.Below(4) == 0) return ResetFlags(critical);
  if (kind < 98 || !evaluator_->space().may_split()) return Flip(rules.forward_first);
  return Flip(kind < 99 ? rules.split : rules.eager_weights);
}

}  // namespace penstock::core
