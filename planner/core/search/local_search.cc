#include "planner/core/search/local_search.h"

#include <algorithm>
#include <utility>

namespace penstock::core {
namespace {

constexpr size_t kHistory = 20;
// The mean makespan of the replicas counts as one in so many.
constexpr int64_t kMeanShare = 4;
// What a step costs besides its passes, in passes.
constexpr int64_t kStepPasses = 24;

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
    const int64_t before = evaluator_->simulated() + candidate_->table.placing_passes();
    Try();
    left -= evaluator_->simulated() + candidate_->table.placing_passes() - before + kStepPasses;
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
