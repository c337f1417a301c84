#include "planner/core/fit/free_memory.h"

#include <algorithm>
#include <tuple>
#include <vector>

#include "planner/core/simulate/memory_account.h"

namespace penstock::core {
namespace {

// Peaks of a rank above the limit that are looked at, for each micro-batch.
constexpr size_t kPeaks = 2;
// Passes that are simulated at most to choose what is recomputed.
constexpr int64_t kFreePasses = 2'000'000;

// More recompute of a micro-batch on a stage.
struct Relief {
  HeldMicroBatch held;
  int32_t slot = -1;
  int32_t level = 0;
  int64_t freed_bytes = 0;
  int64_t makespan = kInfeasibleNs;
};

class RankRelief {
 public:
  RankRelief(int replica, int64_t missing_bytes, ReplicaEvaluator* evaluator, Candidate* candidate)
      : replica_(replica), missing_bytes_(missing_bytes), evaluator_(evaluator), candidate_(candidate) {}

  void Try(const HeldMicroBatch& held);
  bool Apply();
  const Relief& best() const { return best_; }

 private:
  int64_t HeldBytesOf(int32_t slot, int stage) const {
    return candidate_->table.field(MicroBatchTable::kHeldBytes)[candidate_->table.offset(slot) + stage];
  }
  bool IsBetter(const Relief& relief) const {
    const auto key = [this](const Relief& one) {
      const int64_t freed = std::min(one.freed_bytes, missing_bytes_);
      return std::tuple(-freed, one.makespan);
    };
    return best_.slot < 0 || key(relief) < key(best_);
  }

  const int replica_;
  const int64_t missing_bytes_;
  ReplicaEvaluator* evaluator_;
  Candidate* candidate_;
  Relief best_;
};

void RankRelief::Try(const HeldMicroBatch& held) {
  MicroBatchTable& table = candidate_->table;
  const std::vector<int32_t>& slots = candidate_->replicas[replica_].slots;
  Relief relief{held, slots[held.micro_batch]};
  const int32_t before = table.levels(relief.slot)[held.stage];
  const int64_t bytes = HeldBytesOf(relief.slot, held.stage);
  const int32_t highest = evaluator_->space().levels(held.stage).highest;
  for (relief.level = before; relief.level < highest && relief.freed_bytes < missing_bytes_;) {
    table.UpdateLevel(relief.slot, held.stage, ++relief.level);
    relief.freed_bytes = bytes - HeldBytesOf(relief.slot, held.stage);
  }
  if (relief.freed_bytes > 0) {
    relief.makespan = evaluator_->Replay(table, slots, candidate_->orders[replica_], replica_);
    if (IsBetter(relief)) best_ = relief;
  }
  table.UpdateLevel(relief.slot, held.stage, before);
}

bool RankRelief::Apply() {
  if (best_.slot < 0 || best_.makespan >= kInfeasibleNs) return false;
  candidate_->table.UpdateLevel(best_.slot, best_.held.stage, best_.level);
  candidate_->replicas[replica_].makespan = best_.makespan;
  return true;
}

// What the programs say once so much less is held between the passes of a micro-batch. Times stay as they
// are.
void TakeOff(int64_t bytes, int rank, const HeldMicroBatch& held, ProgramSet* programs) {
  for (int32_t i = programs->rank_begin[rank]; i < programs->rank_begin[rank + 1]; ++i) {
    Instruction& instruction = programs->instructions[i];
    if (instruction.micro_batch != held.micro_batch || instruction.stage != held.stage) continue;
    if (instruction.op == Op::kForward) instruction.acquired_bytes -= bytes;
    if (instruction.op == Op::kBackward) instruction.released_bytes -= bytes;
    // It keeps as much as before.
    if (instruction.op == Op::kBackwardInput) instruction.acquired_bytes += bytes;
  }
}

// Frees memory at one peak after the other, until the evaluator has simulated so many passes.
bool FreeRank(int rank, int64_t limit_bytes, int64_t most_simulated, ReplicaEvaluator* evaluator,
              Candidate* candidate, ProgramSet* programs) {
  const int replica = evaluator->space().topology().PlaceOf(rank).replica;
  const size_t peaks = kPeaks * candidate->replicas[replica].slots.size();
  for (size_t peak = 0; peak < peaks; ++peak) {
    const RankMemory memory = AccountMemory(*programs, rank);
    const int64_t missing = memory.peak_bytes - limit_bytes;
    if (missing <= 0) return true;
    if (evaluator->simulated() > most_simulated || candidate->stop.stopped()) return false;
    RankRelief relief(replica, missing, evaluator, candidate);
    for (const HeldMicroBatch& held : HeldAtPeak(*programs, rank, memory)) {
      if (candidate->stop.stopped()) return false;
      relief.Try(held);
    }
    if (!relief.Apply()) return false;
    TakeOff(relief.best().freed_bytes, rank, relief.best().held, programs);
  }
  return true;
}

}  // namespace

bool FreeMemory(ProgramSet programs, const MemoryLimits& limits, ReplicaEvaluator* evaluator,
                Candidate* candidate) {
  const int64_t most = evaluator->simulated() + kFreePasses;
  bool all = true;
  for (int rank = 0; rank < programs.ranks(); ++rank) {
    if (candidate->stop.stopped()) return false;
    if (!FreeRank(rank, limits.Of(rank), most, evaluator, candidate, &programs)) all = false;
  }
  SetMakespan(candidate);
  return all;
}

}  // namespace penstock::core
