#include "planner/core/search/replica_evaluator.h"

#include <algorithm>

#include "planner/core/schedule/one_forward_one_backward.h"
#include "planner/core/schedule/rank_passes.h"

namespace penstock::core {
namespace {

// Transfers above one in so many of the time of passes: opposite transfers get into each other's way.
constexpr int64_t kBusyLinkShare = 20;

}  // namespace

void ReplicaEvaluator::Gather(const MicroBatchTable& table, absl::Span<const int> slots, int first_rank) {
  const int stages = costs_.stages();
  pipeline_.Resize(stages, static_cast<int>(slots.size()));
  pipeline_.ranks = costs_.ranks();
  pipeline_.rank_of_stage = costs_.rank_of_stage();
  for (size_t m = 0; m < slots.size(); ++m) {
    std::copy_n(table.forward_ns(slots[m]), stages, &pipeline_.forward_ns[m * stages]);
    std::copy_n(table.backward_ns(slots[m]), stages, &pipeline_.backward_ns[m * stages]);
    std::copy_n(table.near_transfer_ns(slots[m]), stages, &pipeline_.transfer_ns[m * stages]);
  }
  for (int stage = 0; stage + 1 < stages; ++stage) {
    if (costs_.LinkBetween(first_rank + stage, first_rank + stage + 1) == Link::kInsideNode) continue;
    for (size_t m = 0; m < slots.size(); ++m) {
      pipeline_.transfer_ns[m * stages + stage] = table.far_transfer_ns(slots[m])[stage];
    }
  }
}

bool ReplicaEvaluator::FitsAsIs(const MicroBatchTable& table, absl::Span<const int> slots) const {
  const int count = static_cast<int>(slots.size());
  for (int stage = 0; stage < costs_.stages(); ++stage) {
    const int depth = std::min(count, costs_.stages() - stage);
    // Usually not even the largest micro-batches together come near the limit.
    int64_t most_held = 0;
    int64_t most_passing = 0;
    for (const int slot : slots) {
      most_held = std::max(most_held, table.held_bytes(slot)[stage]);
      most_passing = std::max(most_passing, table.passing_bytes(slot)[stage]);
    }
    if (depth * most_held + most_passing <= available_[stage]) continue;
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

bool ReplicaEvaluator::LinksAreBusy() const {
  int64_t passes = 0;
  int64_t transfers = 0;
  for (size_t i = 0; i < pipeline_.forward_ns.size(); ++i) {
    passes += pipeline_.forward_ns[i] + pipeline_.backward_ns[i];
    transfers += 2 * pipeline_.transfer_ns[i];
  }
  return transfers > passes / kBusyLinkShare;
}

int64_t ReplicaEvaluator::Estimate() {
  simulated_ += 4 * static_cast<int64_t>(pipeline_.forward_ns.size());
  if (!LinksAreBusy()) return estimate_.Run(pipeline_, order_);
  MakeRankPasses(pipeline_, order_, &passes_);
  return timeline_.Run(pipeline_, passes_) ? timeline_.makespan_ns() : kInfeasibleNs;
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

int64_t ReplicaEvaluator::Makespan(const MicroBatchTable& table, absl::Span<const int> slots,
                                   int first_rank) {
  for (const int slot : slots) {
    if (!table.known(slot)) return kInfeasibleNs;
  }
  Gather(table, slots, first_rank);
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
  MakeRankPasses(pipeline_, order_, &pipeline->passes);
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
