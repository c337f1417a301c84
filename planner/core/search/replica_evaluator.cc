#include "planner/core/search/replica_evaluator.h"

#include <algorithm>

#include "planner/core/schedule/one_forward_one_backward.h"

namespace penstock::core {

void ReplicaEvaluator::Gather(const MicroBatchTable& table, absl::Span<const int> slots, int first_rank) {
  const int stages = costs_.stages();
  pipeline_.Resize(stages, static_cast<int>(slots.size()));
  for (size_t m = 0; m < slots.size(); ++m) {
    const int64_t* forward = table.forward_ns(slots[m]);
    const int64_t* backward = table.backward_ns(slots[m]);
    const StageMemory* memory = table.memory(slots[m]);
    const size_t at = m * stages;
    for (int stage = 0; stage < stages; ++stage) {
      pipeline_.forward_ns[at + stage] = forward[stage];
      pipeline_.backward_ns[at + stage] = backward[stage];
      pipeline_.transfer_ns[at + stage] =
          stage + 1 == stages
              ? 0
              : costs_.TransferNs(memory[stage].output, first_rank + stage, first_rank + stage + 1);
    }
  }
}

bool ReplicaEvaluator::FitsAsIs(const MicroBatchTable& table, absl::Span<const int> slots) const {
  const int count = static_cast<int>(slots.size());
  for (int stage = 0; stage < costs_.stages(); ++stage) {
    const int depth = std::min(count, costs_.stages() - stage);
    for (int first = 0; first + depth <= count; ++first) {
      int64_t held = 0;
      int64_t passing = 0;
      for (int m = first; m < first + depth; ++m) {
        held += table.held_bytes(slots[m])[stage];
        passing = std::max(passing, table.passing_bytes(slots[m])[stage]);
      }
      if (held + passing > available_[stage]) return false;
    }
  }
  return true;
}

int64_t ReplicaEvaluator::Estimate() {
  simulated_ += 4 * static_cast<int64_t>(pipeline_.forward_ns.size());
  return estimate_.Run(pipeline_, order_);
}

int64_t ReplicaEvaluator::TryFit(const MicroBatchTable& table, absl::Span<const int> slots,
                                 bool prefer_waiting, bool serial) {
  const int stages = costs_.stages();
  memory_.stages = stages;
  memory_.micro_batches = static_cast<int>(slots.size());
  memory_.memory.resize(slots.size() * stages);
  for (size_t m = 0; m < slots.size(); ++m) {
    std::copy_n(table.memory(slots[m]), stages, memory_.memory.begin() + m * stages);
  }
  fit_.mode = table.mode();
  fit_.prefer_waiting = prefer_waiting;
  fit_.serial = serial;
  fit_.available_bytes = available_;
  if (!FitMemory(costs_, memory_, fit_, &recompute_, &order_)) return kInfeasibleNs;
  for (size_t m = 0; m < slots.size(); ++m) {
    for (int stage = 0; stage < stages; ++stage) {
      const size_t at = m * stages + stage;
      pipeline_.backward_ns[at] = costs_.BackwardNs(stage, table.layer_costs(slots[m]), recompute_[at]);
    }
  }
  return Estimate();
}

int64_t ReplicaEvaluator::Makespan(const MicroBatchTable& table, absl::Span<const int> slots) {
  for (const int slot : slots) {
    if (!table.known(slot)) return kInfeasibleNs;
  }
  Gather(table, slots, 0);
  if (FitsAsIs(table, slots)) {
    MakeOneForwardOneBackward(costs_.stages(), static_cast<int>(slots.size()), &order_);
    return Estimate();
  }
  const int64_t recomputing = TryFit(table, slots, /*prefer_waiting=*/false, /*serial=*/false);
  if (table.mode() != RecomputeMode::kAuto) return recomputing;
  return std::min(recomputing, TryFit(table, slots, /*prefer_waiting=*/true, /*serial=*/false));
}

bool ReplicaEvaluator::MakePipeline(const MicroBatchTable& table, absl::Span<const int> slots, int first_rank,
                                    ReplicaPipeline* pipeline) {
  for (const int slot : slots) {
    if (!table.known(slot)) return false;
  }
  Gather(table, slots, first_rank);
  const int64_t recomputing = TryFit(table, slots, /*prefer_waiting=*/false, /*serial=*/false);
  int64_t best = recomputing;
  if (table.mode() == RecomputeMode::kAuto) {
    const int64_t waiting = TryFit(table, slots, /*prefer_waiting=*/true, /*serial=*/false);
    best = std::min(best, waiting);
    if (recomputing < waiting) TryFit(table, slots, /*prefer_waiting=*/false, /*serial=*/false);
  }
  if (best == kInfeasibleNs && TryFit(table, slots, false, /*serial=*/true) == kInfeasibleNs) return false;
  pipeline->costs = pipeline_;
  pipeline->memory = memory_.memory;
  pipeline->recompute = recompute_;
  pipeline->order = order_;
  return true;
}

bool ReplicaEvaluator::FitsAlone(const MicroBatchTable& table, int slot, int stage) const {
  const bool may_recompute = table.mode() == RecomputeMode::kAuto;
  const StageRecompute most =
      InitialRecompute(costs_.stage(stage), may_recompute ? RecomputeMode::kFull : table.mode());
  const StageMemory& memory = table.memory(slot)[stage];
  return HeldBytes(costs_, stage, memory, most) + PassingBytes(memory) <= available_[stage];
}

}  // namespace penstock::core
