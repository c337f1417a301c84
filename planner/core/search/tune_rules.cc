#include "planner/core/search/tune_rules.h"

#include <algorithm>

namespace penstock::core {
namespace {

// Evaluates a replica as it stands; keeps it in `best` if it is better.
void Judge(ReplicaEvaluator* evaluator, int replica, Candidate* candidate, CandidateReplica* best) {
  UpdateReplica(replica, candidate);
  EvaluateReplica(evaluator, replica, candidate, best->makespan);
  if (candidate->replicas[replica].makespan < best->makespan) *best = candidate->replicas[replica];
}

// A share of the levels above the lowest; false when nothing changes.
bool LowerLevels(const ScheduleSpace& space, int quarters, const std::vector<int32_t>& from,
                 std::vector<int32_t>* levels) {
  bool changed = false;
  for (size_t stage = 0; stage < from.size(); ++stage) {
    const int32_t lowest = space.levels(static_cast<int>(stage)).lowest;
    const int32_t level = lowest + (from[stage] - lowest) * quarters / 4;
    changed = changed || level != (*levels)[stage];
    (*levels)[stage] = level;
  }
  return changed;
}

// With several stages a rank, forward passes of the first can fill memory so that the later ones never run.
// Runs less far ahead then, at last one micro-batch at a time.
void RelieveMemory(ReplicaEvaluator* evaluator, int replica, Candidate* candidate) {
  CandidateReplica& part = candidate->replicas[replica];
  const ScheduleSpace& space = evaluator->space();
  for (const bool serial : {false, true}) {
    if (part.makespan < kInfeasibleNs) return;
    for (size_t stage = 0; stage < part.rules.schedule.ahead.size(); ++stage) {
      part.rules.schedule.ahead[stage] = serial ? 1 : space.Depth(static_cast<int>(stage));
    }
    EvaluateReplica(evaluator, replica, candidate);
  }
}

}  // namespace

void TuneRules(ReplicaEvaluator* evaluator, Candidate* candidate) {
  for (size_t index = 0; index < candidate->replicas.size(); ++index) {
    const int replica = static_cast<int>(index);
    CandidateReplica& part = candidate->replicas[index];
    RelieveMemory(evaluator, replica, candidate);
    CandidateReplica best = part;
    const std::vector<int32_t> levels = part.rules.levels;
    for (const int quarters : {3, 2, 1, 0}) {
      if (!LowerLevels(evaluator->space(), quarters, levels, &part.rules.levels)) break;
      Judge(evaluator, replica, candidate, &best);
    }
    if (!evaluator->space().is_strict()) {
      part = best;
      std::fill(part.rules.schedule.forward_first.begin(), part.rules.schedule.forward_first.end(), 1);
      Judge(evaluator, replica, candidate, &best);
    }
    part = best;
    UpdateReplica(replica, candidate);
    EvaluateReplica(evaluator, replica, candidate);
  }
  SetMakespan(candidate);
}

}  // namespace penstock::core
