#include "planner/core/search/local_search.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace penstock::core {
namespace {

constexpr size_t kHistory = 20;
// The mean makespan of the replicas counts as one in so many.
constexpr int64_t kMeanShare = 4;
// Of a hundred changes, those of the replica that ends last.
constexpr uint32_t kCriticalPercent = 75;
// What a step costs besides its passes, in passes.
constexpr int64_t kStepPasses = 24;
// Samples that move together at most.
constexpr uint32_t kMostMoved = 6;
// All of more micro-batches than that are never in flight at once.
constexpr size_t kFewMicroBatches = 8;
// So few that finding their order anew is as cheap as anything.
constexpr size_t kVeryFewMicroBatches = 4;

}  // namespace

LocalSearch::LocalSearch(ReplicaEvaluator* evaluator, Candidate* candidate, uint64_t seed, ReplicaCheck check)
    : evaluator_(evaluator),
      candidate_(candidate),
      random_(seed),
      check_(std::move(check)),
      score_(0),
      best_(0),
      best_replicas_(candidate->replicas),
      best_orders_(candidate->orders),
      dirty_replicas_(candidate->replicas.size(), 0) {
  const MicroBatchTable& table = candidate->table;
  std::vector<char> used(table.slots(), 0);
  for (const CandidateReplica& replica : candidate->replicas) {
    for (const int32_t slot : replica.slots) used[slot] = 1;
  }
  for (int slot = 0; slot < table.slots(); ++slot) {
    best_samples_.push_back(table.samples(slot));
    const absl::Span<const int32_t> levels = table.levels(slot);
    best_levels_.emplace_back(levels.begin(), levels.end());
    if (used[slot] == 0) free_slots_.push_back(slot);
  }
  dirty_slots_.assign(table.slots(), 0);
  score_ = best_ = Score();
  history_.assign(kHistory, score_);
}

int64_t LocalSearch::Score() const {
  int64_t sum = 0;
  for (const CandidateReplica& replica : candidate_->replicas) sum += replica.makespan;
  return candidate_->makespan + sum / (kMeanShare * static_cast<int64_t>(candidate_->replicas.size()));
}

bool LocalSearch::EvaluateChange(int64_t most) {
  const int64_t share = kMeanShare * static_cast<int64_t>(candidate_->replicas.size());
  int64_t known = 0;
  for (const CandidateReplica& replica : candidate_->replicas) known += replica.makespan;
  for (size_t i = 0; i < saved_replica_count_; ++i) {
    known -= candidate_->replicas[saved_replicas_[i].replica].makespan;
  }
  for (size_t i = 0; i < saved_replica_count_; ++i) {
    const int replica = saved_replicas_[i].replica;
    // The score is at least makespan + (known + makespan) / share, but for rounding.
    const int64_t give_up = (most - known / share + 2) / (share + 1) * share + share;
    CandidateReplica& part = candidate_->replicas[replica];
    if (keeps_order_) {
      part.makespan =
          evaluator_->Replay(candidate_->table, part.slots, candidate_->orders[replica], replica, give_up);
    } else {
      Schedule(&saved_replicas_[i], give_up);
    }
    const int64_t makespan = part.makespan;
    if (makespan >= kInfeasibleNs) return false;
    known += makespan;
  }
  SetMakespan(candidate_);
  return Score() <= most;
}

void LocalSearch::Schedule(SavedReplica* saved, int64_t give_up_ns) {
  std::swap(saved->order, candidate_->orders[saved->replica]);
  saved->has_order = true;
  EvaluateReplica(evaluator_, saved->replica, candidate_, give_up_ns);
}

void LocalSearch::RescheduleChange() {
  for (size_t i = 0; i < saved_replica_count_; ++i) {
    SavedReplica& saved = saved_replicas_[i];
    CandidateReplica& part = candidate_->replicas[saved.replica];
    const int64_t makespan = part.makespan;
    Schedule(&saved, makespan - 1);
    if (part.makespan < makespan) continue;
    part.makespan = makespan;
    std::swap(saved.order, candidate_->orders[saved.replica]);
    saved.has_order = false;
  }
  SetMakespan(candidate_);
  score_ = Score();
}

void LocalSearch::Run(int64_t budget) {
  int64_t left = budget;
  while (left > 0 && !candidate_->stop.stopped()) {
    const int64_t before = evaluator_->simulated();
    Try();
    left -= evaluator_->simulated() - before + kStepPasses;
  }
  if (candidate_->stop.stopped()) return;
  candidate_->replicas = best_replicas_;
  candidate_->orders = best_orders_;
  for (int slot = 0; slot < candidate_->table.slots(); ++slot) {
    candidate_->table.samples(slot) = best_samples_[slot];
    std::copy(best_levels_[slot].begin(), best_levels_[slot].end(), candidate_->table.levels(slot).begin());
  }
  for (size_t replica = 0; replica < candidate_->replicas.size(); ++replica) {
    UpdateReplica(static_cast<int>(replica), candidate_);
  }
  SetMakespan(candidate_);
}

void LocalSearch::SaveSlot(int32_t slot) {
  if (saved_slot_count_ == saved_slots_.size()) saved_slots_.emplace_back();
  candidate_->table.Save(slot, &saved_slots_[saved_slot_count_++]);
}

void LocalSearch::SaveReplica(int replica) {
  if (saved_replica_count_ == saved_replicas_.size()) saved_replicas_.emplace_back();
  SavedReplica& saved = saved_replicas_[saved_replica_count_++];
  saved.replica = replica;
  saved.part = candidate_->replicas[replica];
  saved.has_order = false;
}

void LocalSearch::Undo() {
  while (saved_slot_count_ > 0) candidate_->table.Restore(saved_slots_[--saved_slot_count_]);
  while (saved_replica_count_ > 0) {
    SavedReplica& saved = saved_replicas_[--saved_replica_count_];
    candidate_->replicas[saved.replica] = saved.part;
    if (saved.has_order) std::swap(saved.order, candidate_->orders[saved.replica]);
  }
  if (taken_slot_ >= 0) free_slots_.push_back(taken_slot_);
}

void LocalSearch::Accept() {
  for (size_t i = 0; i < saved_slot_count_; ++i) dirty_slots_[saved_slots_[i].slot] = 1;
  for (size_t i = 0; i < saved_replica_count_; ++i) dirty_replicas_[saved_replicas_[i].replica] = 1;
  if (taken_slot_ >= 0) dirty_slots_[taken_slot_] = 1;
  if (freed_slot_ >= 0) free_slots_.push_back(freed_slot_);
  saved_slot_count_ = 0;
  saved_replica_count_ = 0;
}

void LocalSearch::RememberBest() {
  best_ = score_;
  for (size_t slot = 0; slot < dirty_slots_.size(); ++slot) {
    if (dirty_slots_[slot] == 0) continue;
    best_samples_[slot] = candidate_->table.samples(static_cast<int>(slot));
    const absl::Span<const int32_t> levels = candidate_->table.levels(static_cast<int>(slot));
    best_levels_[slot].assign(levels.begin(), levels.end());
    dirty_slots_[slot] = 0;
  }
  for (size_t replica = 0; replica < dirty_replicas_.size(); ++replica) {
    if (dirty_replicas_[replica] == 0) continue;
    best_replicas_[replica] = candidate_->replicas[replica];
    best_orders_[replica] = candidate_->orders[replica];
    dirty_replicas_[replica] = 0;
  }
}

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
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t index = random_.Below(static_cast<uint32_t>(from.size()));
    to.push_back(from[index]);
    from[index] = from.back();
    from.pop_back();
  }
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
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t index = random_.Below(static_cast<uint32_t>(from.size()));
    to.push_back(from[index]);
    from[index] = from.back();
    from.pop_back();
  }
  candidate_->replicas[replica].rules.backward_order.clear();
  std::vector<int32_t>& slots = candidate_->replicas[replica].slots;
  slots.insert(slots.begin() + position + random_.Below(2), taken_slot_);
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
  const std::vector<int32_t> levels = evaluator_->space().FitLevelsForAll(table, part.slots);
  for (const int32_t slot : part.slots) {
    SaveSlot(slot);
    std::copy(levels.begin(), levels.end(), table.levels(slot).begin());
    table.Update(slot);
  }
  return true;
}

bool LocalSearch::ResetFlags(int replica) {
  CandidateReplica& part = candidate_->replicas[replica];
  const FittedRules fitted = evaluator_->space().Fit(candidate_->table, part.slots);
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

bool LocalSearch::PassesCheck() const {
  if (check_ == nullptr) return true;
  for (size_t i = 0; i < saved_replica_count_; ++i) {
    if (!check_(saved_replicas_[i].replica)) return false;
  }
  return true;
}

bool LocalSearch::Try() {
  saved_slot_count_ = 0;
  saved_replica_count_ = 0;
  freed_slot_ = -1;
  taken_slot_ = -1;
  const int64_t makespan = candidate_->makespan;
  if (!Change()) {
    Undo();
    return false;
  }
  int64_t& late = history_[history_next_];
  history_next_ = (history_next_ + 1) % kHistory;
  if (EvaluateChange(std::max(score_, late)) && PassesCheck()) {
    score_ = Score();
    // A strict schedule has one order alone; another order might not pass the check.
    if (keeps_order_ && score_ < best_ && !evaluator_->space().is_strict() && check_ == nullptr) {
      RescheduleChange();
    }
    late = score_;
    Accept();
    if (score_ < best_) RememberBest();
    return true;
  }
  late = score_;
  Undo();
  candidate_->makespan = makespan;
  return false;
}

}  // namespace penstock::core
