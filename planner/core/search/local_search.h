// Refines a candidate by small random changes, judged by the simulated makespan of the replicas that they
// touch.
//
// Changes: move a sample to another micro-batch, swap two samples, move a micro-batch to another place in the
// order, swap two micro-batches between replicas. The replica that ends last is always part of the change.
// Accepts by late acceptance (Burke and Bykov 2017, "The late acceptance hill-climbing heuristic"): a change
// may be as bad as the answer was some steps ago, which leads out of local optima without a temperature to
// tune.
//
// Deterministic: the random numbers start from a constant, and the budget is counted in simulated passes.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/core/search/candidate.h"

namespace penstock::core {

// splitmix64 (Steele, Lea and Flood 2014): the same sequence on every machine.
class SplitMix {
 public:
  explicit SplitMix(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // Uniform below `limit`, which must be above 0 and below 2^32.
  uint32_t Below(uint32_t limit) { return static_cast<uint32_t>(((Next() >> 32) * limit) >> 32); }

 private:
  uint64_t state_;
};

class LocalSearch {
 public:
  // `candidate` has been evaluated and is feasible.
  LocalSearch(ReplicaEvaluator* evaluator, Candidate* candidate);

  // Runs until `budget` more passes have been simulated; leaves the best answer in the candidate.
  void Run(int64_t budget);

 private:
  // A micro-batch by its place in the order of a replica.
  struct Place {
    int replica = 0;
    int position = 0;
  };
  enum class Change : uint8_t { kNone, kMoveSample, kSwapSamples, kReorder, kSwapMicroBatches };
  // What was done last, for taking it back.
  struct Step {
    Change change = Change::kNone;
    Place from;
    Place to;
    uint32_t from_sample = 0;
    uint32_t to_sample = 0;
  };

  int SlotAt(const Place& place) const { return candidate_->replicas[place.replica][place.position]; }
  Place RandomPlace(int replica);
  int CriticalReplica() const;
  Step Propose();
  // Both are their own inverse but for the roles of the two places.
  void Apply(const Step& step);
  void Revert(const Step& step);
  void MoveSample(int from_slot, uint32_t index, int to_slot);
  void Reorder(int replica, int from, int to);
  // Evaluates the replicas that the step touches into candidate_->makespans.
  void EvaluateStep(const Step& step);
  bool Try();
  void Remember();

  ReplicaEvaluator* evaluator_;
  Candidate* candidate_;
  SplitMix random_{0x70656e73746f636bu};
  // Late acceptance: makespans of some steps ago.
  std::vector<int64_t> history_;
  size_t history_next_ = 0;
  // The best answer so far.
  int64_t best_;
  std::vector<std::vector<int>> best_replicas_;
  std::vector<std::vector<uint32_t>> best_samples_;
};

}  // namespace penstock::core
