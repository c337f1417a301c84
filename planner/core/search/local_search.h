// Refines a candidate by small random changes, judged by the simulated makespan of the replicas that they
// touch.
//
// Changes: samples move to another micro-batch or are swapped; a micro-batch is split, merged into another,
// moved in the order or to another replica; a replica recomputes more or fewer layers on a stage, runs
// further ahead or less far, turns the order of its backward passes, splits those of a stage or not, or takes
// its rules back to where they began. Three of four changes concern the replica that ends last. Accepts by
// late acceptance (Burke and Bykov 2017, "The late acceptance hill-climbing heuristic"): a change may be as
// bad as the answer was some steps ago, which leads out of local optima without a temperature to tune.
//
// Deterministic: the random numbers start from a given seed, and the budget is counted in simulated passes.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "planner/core/search/candidate.h"
#include "planner/core/search/split_mix.h"

namespace penstock::core {

// Whether a replica of the candidate can run as it is, beyond what searches count.
using ReplicaCheck = std::function<bool(int replica)>;

class LocalSearch {
 public:
  // `candidate` has been evaluated and is feasible. `check`, if there is one, is asked about every change
  // before it is accepted; the candidate passes it.
  LocalSearch(ReplicaEvaluator* evaluator, Candidate* candidate, uint64_t seed, ReplicaCheck check = nullptr);

  // Runs until `budget` more passes have been simulated; leaves the best answer in the candidate.
  void Run(int64_t budget);

 private:
  // What a change touched, as it was.
  struct SavedReplica {
    int replica = 0;
    CandidateReplica part;
    // Its order, once it has been scheduled anew.
    std::vector<Pass> order;
    bool has_order = false;
  };

  void SaveSlot(int32_t slot);
  void SaveReplica(int replica);
  void Undo();
  void Accept();
  void RememberBest();

  // The makespan, and a share of the mean over replicas.
  int64_t Score() const;
  // Evaluates the replicas that the running change touches. False as soon as the score is above `most`.
  bool EvaluateChange(int64_t most);
  // Schedules it anew; its order goes to `saved`.
  void Schedule(SavedReplica* saved, int64_t give_up_ns);
  // A new best answer may have an even better order.
  void RescheduleChange();
  int CriticalReplica() const;
  // A random replica, or the same one.
  int PartnerOf(int replica);
  int32_t RandomSlot(int replica, uint32_t* position = nullptr);
  // Moves `count` random samples.
  void TakeRandom(uint32_t count, std::vector<uint32_t>& from, std::vector<uint32_t>& to);
  // Each makes one change and returns false when there was none to make.
  bool Change();
  bool MoveSamples(int from_replica, int to_replica);
  bool SwapSamples(int from_replica, int to_replica);
  bool SplitMicroBatch(int replica);
  bool MergeMicroBatch(int replica);
  bool Reorder(int replica);
  bool SwapMicroBatches(int from_replica, int to_replica);
  bool MoveMicroBatch(int from_replica, int to_replica);
  bool ChangeLevel(int replica);
  bool ChangeAhead(int replica);
  bool ChangeBackwardOrder(int replica);
  // Last in, first out, with the recompute that it needs.
  bool TurnBackwardOrder(int replica);
  // The rules that a replica begins with, but for how far stages run ahead.
  bool ResetFlags(int replica);
  bool Flip(std::vector<char>& flags);

  bool Try();
  bool PassesCheck() const;

  ReplicaEvaluator* evaluator_;
  Candidate* candidate_;
  SplitMix random_;
  ReplicaCheck check_;
  // Late acceptance: scores of some steps ago.
  std::vector<int64_t> history_;
  size_t history_next_ = 0;

  // Undo log of the running change; the arrays keep their storage.
  std::vector<MicroBatchTable::Saved> saved_slots_;
  size_t saved_slot_count_ = 0;
  std::vector<SavedReplica> saved_replicas_;
  size_t saved_replica_count_ = 0;
  // Whether the running change keeps the orders of its replicas.
  bool keeps_order_ = false;
  // Slots that no replica uses, and the one that the running change frees or takes (-1: none).
  std::vector<int32_t> free_slots_;
  int32_t freed_slot_ = -1;
  int32_t taken_slot_ = -1;

  int64_t score_;
  // The score of the best answer so far, which is brought up to date only where something has changed since.
  int64_t best_;
  std::vector<CandidateReplica> best_replicas_;
  std::vector<std::vector<Pass>> best_orders_;
  std::vector<std::vector<uint32_t>> best_samples_;
  std::vector<std::vector<int32_t>> best_levels_;
  std::vector<char> dirty_slots_;
  std::vector<char> dirty_replicas_;
};

}  // namespace penstock::core
