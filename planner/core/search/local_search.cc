#include "planner/core/search/local_search.h"

#include <algorithm>
#include <utility>

namespace penstock::core {
namespace {

constexpr size_t kHistory = 60;

}  // namespace

LocalSearch::LocalSearch(ReplicaEvaluator* evaluator, Candidate* candidate)
    : evaluator_(evaluator),
      candidate_(candidate),
      history_(kHistory, candidate->makespan),
      best_(candidate->makespan) {
  Remember();
}

void LocalSearch::Remember() {
  best_ = candidate_->makespan;
  best_replicas_ = candidate_->replicas;
  best_samples_.resize(candidate_->table.slots());
  for (int slot = 0; slot < candidate_->table.slots(); ++slot)
    best_samples_[slot] = candidate_->table.samples(slot);
}

void LocalSearch::Run(int64_t budget) {
  const int64_t end = evaluator_->simulated() + budget;
  // A step that cannot be made costs nothing, so steps are bounded too.
  const int64_t most_steps = budget / 8 + 1;
  for (int64_t step = 0; step < most_steps && evaluator_->simulated() < end; ++step) {
    if (Try() && candidate_->makespan < best_) Remember();
  }
  candidate_->replicas = best_replicas_;
  for (int slot = 0; slot < candidate_->table.slots(); ++slot) {
    candidate_->table.samples(slot) = best_samples_[slot];
    candidate_->table.Update(slot);
  }
  Evaluate(evaluator_, candidate_);
}

int LocalSearch::CriticalReplica() const {
  const auto& makespans = candidate_->makespans;
  return static_cast<int>(std::max_element(makespans.begin(), makespans.end()) - makespans.begin());
}

LocalSearch::Place LocalSearch::RandomPlace(int replica) {
  const auto size = static_cast<uint32_t>(candidate_->replicas[replica].size());
  return {replica, static_cast<int>(random_.Below(size))};
}

LocalSearch::Step LocalSearch::Propose() {
  Step step;
  const auto replicas = static_cast<uint32_t>(candidate_->replicas.size());
  const int critical = CriticalReplica();
  const int other =
      replicas > 1 && random_.Below(2) == 0 ? static_cast<int>(random_.Below(replicas)) : critical;
  if (candidate_->replicas[critical].empty() || candidate_->replicas[other].empty()) return step;
  step.from = RandomPlace(critical);
  step.to = RandomPlace(other);
  if (step.from.replica == step.to.replica && step.from.position == step.to.position) return step;
  if (random_.Below(2) == 0) std::swap(step.from, step.to);
  const auto& from = candidate_->table.samples(SlotAt(step.from));
  const auto& to = candidate_->table.samples(SlotAt(step.to));
  step.from_sample = random_.Below(static_cast<uint32_t>(from.size()));
  step.to_sample = random_.Below(static_cast<uint32_t>(to.size()));
  const uint32_t kind = random_.Below(10);
  if (kind < 5) {
    if (from.size() > 1) step.change = Change::kMoveSample;
  } else if (kind < 8) {
    step.change = Change::kSwapSamples;
  } else {
    step.change = critical == other ? Change::kReorder : Change::kSwapMicroBatches;
  }
  return step;
}

void LocalSearch::MoveSample(int from_slot, uint32_t index, int to_slot) {
  std::vector<uint32_t>& from = candidate_->table.samples(from_slot);
  std::vector<uint32_t>& to = candidate_->table.samples(to_slot);
  to.push_back(from[index]);
  from[index] = from.back();
  from.pop_back();
}

void LocalSearch::Reorder(int replica, int from, int to) {
  auto slots = candidate_->replicas[replica].begin();
  if (from < to) {
    std::rotate(slots + from, slots + from + 1, slots + to + 1);
  } else {
    std::rotate(slots + to, slots + from, slots + from + 1);
  }
}

void LocalSearch::Apply(const Step& step) {
  MicroBatchTable& table = candidate_->table;
  switch (step.change) {
    case Change::kNone:
      return;
    case Change::kReorder:
      return Reorder(step.from.replica, step.from.position, step.to.position);
    case Change::kSwapMicroBatches:
      return std::swap(candidate_->replicas[step.from.replica][step.from.position],
                       candidate_->replicas[step.to.replica][step.to.position]);
    case Change::kMoveSample:
      MoveSample(SlotAt(step.from), step.from_sample, SlotAt(step.to));
      break;
    case Change::kSwapSamples:
      std::swap(table.samples(SlotAt(step.from))[step.from_sample],
                table.samples(SlotAt(step.to))[step.to_sample]);
      break;
  }
  table.Update(SlotAt(step.from));
  table.Update(SlotAt(step.to));
}

void LocalSearch::Revert(const Step& step) {
  switch (step.change) {
    case Change::kReorder:
      return Reorder(step.from.replica, step.to.position, step.from.position);
    case Change::kMoveSample: {
      const auto last = static_cast<uint32_t>(candidate_->table.samples(SlotAt(step.to)).size() - 1);
      MoveSample(SlotAt(step.to), last, SlotAt(step.from));
      candidate_->table.Update(SlotAt(step.from));
      candidate_->table.Update(SlotAt(step.to));
      return;
    }
    default:
      return Apply(step);
  }
}

void LocalSearch::EvaluateStep(const Step& step) {
  EvaluateReplica(evaluator_, step.from.replica, candidate_);
  if (step.to.replica != step.from.replica) EvaluateReplica(evaluator_, step.to.replica, candidate_);
}

bool LocalSearch::Try() {
  const Step step = Propose();
  if (step.change == Change::kNone) return false;
  const int64_t before = candidate_->makespan;
  const int64_t from_before = candidate_->makespans[step.from.replica];
  const int64_t to_before = candidate_->makespans[step.to.replica];
  Apply(step);
  EvaluateStep(step);
  int64_t& late = history_[history_next_];
  history_next_ = (history_next_ + 1) % kHistory;
  if (candidate_->makespan <= before || candidate_->makespan <= late) {
    late = candidate_->makespan;
    return true;
  }
  late = before;
  Revert(step);
  candidate_->makespans[step.from.replica] = from_before;
  candidate_->makespans[step.to.replica] = to_before;
  candidate_->makespan = before;
  return false;
}

}  // namespace penstock::core
