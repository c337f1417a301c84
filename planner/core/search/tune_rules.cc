#include "planner/core/search/tune_rules.h"

#include <algorithm>
#include <vector>

namespace penstock::core {
namespace {

// Passes that TrimRecompute simulates at most: it looks at every micro-batch by replaying all of them.
constexpr int64_t kTrimPasses = 1'000'000;

// Levels of a replica's micro-batches, one after the other.
std::vector<int32_t> LevelsOf(const Candidate& candidate, int replica) {
  std::vector<int32_t> all;
  for (const int32_t slot : candidate.replicas[replica].slots) {
    const absl::Span<const int32_t> levels = candidate.table.levels(slot);
    all.insert(all.end(), levels.begin(), levels.end());
  }
  return all;
}

// Sets a share, in quarters, of the given levels above the lowest. False when all are the lowest.
bool SetLevels(const ScheduleSpace& space, const std::vector<int32_t>& full, int quarters, int replica,
               Candidate* candidate) {
  bool above = false;
  const size_t stages = space.costs().stages();
  const std::vector<int32_t>& slots = candidate->replicas[replica].slots;
  for (size_t m = 0; m < slots.size(); ++m) {
    for (size_t stage = 0; stage < stages; ++stage) {
      const int32_t lowest = space.levels(static_cast<int>(stage)).lowest;
      const int32_t level = full[m * stages + stage];
      above = above || level > lowest;
      candidate->table.levels(slots[m])[stage] = lowest + (level - lowest) * quarters / 4;
    }
  }
  UpdateReplica(replica, candidate);
  return above;
}

// With several stages a rank, forward passes of the first can fill memory so that the later ones never run.
// Runs less far ahead then, at last one micro-batch at a time.
void RelieveMemory(ReplicaEvaluator* evaluator, int replica, Candidate* candidate) {
  CandidateReplica& part = candidate->replicas[replica];
  const ScheduleSpace& space = evaluator->space();
  for (const bool serial : {false, true}) {
    if (part.makespan < kInfeasibleNs) return;
    for (size_t stage = 0; stage < part.rules.ahead.size(); ++stage) {
      part.rules.ahead[stage] = serial ? 1 : space.Depth(static_cast<int>(stage));
    }
    EvaluateReplica(evaluator, replica, candidate);
  }
}

void TuneLevels(ReplicaEvaluator* evaluator, int replica, Candidate* candidate) {
  const std::vector<int32_t> full = LevelsOf(*candidate, replica);
  CandidateReplica& part = candidate->replicas[replica];
  int64_t best = part.makespan;
  int best_quarters = 4;
  for (const int quarters : {3, 2, 1, 0}) {
    if (!SetLevels(evaluator->space(), full, quarters, replica, candidate)) break;
    EvaluateReplica(evaluator, replica, candidate, best);
    if (part.makespan >= best) continue;
    best = part.makespan;
    best_quarters = quarters;
  }
  SetLevels(evaluator->space(), full, best_quarters, replica, candidate);
  part.makespan = best;
}

// Takes rules that make the replica faster.
void TryRules(const ScheduleRules& rules, ReplicaEvaluator* evaluator, int replica, Candidate* candidate) {
  CandidateReplica& part = candidate->replicas[replica];
  const CandidateReplica before = part;
  part.rules = rules;
  EvaluateReplica(evaluator, replica, candidate, before.makespan);
  if (part.makespan >= before.makespan) part = before;
}

void TuneForwardFirst(ReplicaEvaluator* evaluator, int replica, Candidate* candidate) {
  ScheduleRules rules = candidate->replicas[replica].rules;
  std::fill(rules.forward_first.begin(), rules.forward_first.end(), 1);
  TryRules(rules, evaluator, replica, candidate);
}

// A weight gradient of the first stage that waits lets other stages of its rank go first.
void TuneFirstStage(ReplicaEvaluator* evaluator, int replica, Candidate* candidate) {
  const auto& ranks = evaluator->space().costs().position_of_stage();
  if (!evaluator->space().may_split() || std::count(ranks.begin(), ranks.end(), ranks.front()) == 1) return;
  ScheduleRules rules = candidate->replicas[replica].rules;
  rules.split.front() = 1;
  TryRules(rules, evaluator, replica, candidate);
}

// Nothing, or half of what is recomputed, on every stage where that is no slower.
void TrimMicroBatch(ReplicaEvaluator* evaluator, int replica, int32_t slot,
                    const std::function<bool(int)>& fits, Candidate* candidate) {
  MicroBatchTable& table = candidate->table;
  CandidateReplica& part = candidate->replicas[replica];
  const int stages = table.costs().stages();
  for (int stage = 0; stage < stages; ++stage) {
    const int32_t lowest = evaluator->space().levels(stage).lowest;
    for (const int divisor : {0, 2}) {
      const int32_t before = table.levels(slot)[stage];
      const int32_t level = divisor == 0 ? lowest : lowest + (before - lowest) / divisor;
      if (level == before) break;
      table.UpdateLevel(slot, stage, level);
      const int64_t makespan =
          evaluator->Replay(table, part.slots, candidate->orders[replica], replica, part.makespan);
      if (makespan <= part.makespan && (!fits || fits(replica))) {
        part.makespan = makespan;
        break;
      }
      table.UpdateLevel(slot, stage, before);
    }
  }
}

}  // namespace

void TuneRules(ReplicaEvaluator* evaluator, Candidate* candidate) {
  for (size_t index = 0; index < candidate->replicas.size(); ++index) {
    if (candidate->stop.stopped()) return;
    const int replica = static_cast<int>(index);
    RelieveMemory(evaluator, replica, candidate);
    TuneLevels(evaluator, replica, candidate);
    if (!evaluator->space().is_strict()) TuneForwardFirst(evaluator, replica, candidate);
    TuneFirstStage(evaluator, replica, candidate);
    EvaluateReplica(evaluator, replica, candidate);
  }
  SetMakespan(candidate);
}

void TrimRecompute(ReplicaEvaluator* evaluator, Candidate* candidate,
                   const std::function<bool(int replica)>& fits) {
  const int64_t most = evaluator->simulated() + kTrimPasses;
  for (size_t replica = 0; replica < candidate->replicas.size(); ++replica) {
    CandidateReplica& part = candidate->replicas[replica];
    if (part.makespan >= kInfeasibleNs || candidate->orders[replica].empty()) continue;
    for (const int32_t slot : part.slots) {
      if (evaluator->simulated() > most || candidate->stop.stopped()) break;
      TrimMicroBatch(evaluator, static_cast<int>(replica), slot, fits, candidate);
    }
  }
  SetMakespan(candidate);
}

}  // namespace penstock::core
