// A complete answer before its programs are made: micro-batches in slots of a table, and for each replica
// their order.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "planner/core/partition/groups.h"
#include "planner/core/search/micro_batch_table.h"
#include "planner/core/search/replica_evaluator.h"

namespace penstock::core {

struct Candidate {
  Candidate(const CostModel& costs, absl::Span<const SampleTokens> tokens, RecomputeMode mode)
      : table(costs, tokens, mode) {}

  MicroBatchTable table;
  // Slots in the order in which they enter the pipeline, for each replica.
  std::vector<std::vector<int>> replicas;
  std::vector<int64_t> makespans;
  // The largest of them; kInfeasibleNs when one cannot run.
  int64_t makespan = kInfeasibleNs;
};

// Makes a candidate of groups: a slot for each, divided over replicas longest first, each to the replica with
// least work; in a replica they stay in the order of the groups. Splits the largest groups when there are
// fewer than replicas. `row`: of the concatenated layout.
Candidate MakeCandidate(const CostModel& costs, absl::Span<const SampleTokens> tokens, RecomputeMode mode,
                        Groups groups, Layout layout, int replicas, RowLengths row = {});

// Fills makespans.
void Evaluate(ReplicaEvaluator* evaluator, Candidate* candidate);
void EvaluateReplica(ReplicaEvaluator* evaluator, int replica, Candidate* candidate);

// Orders each replica anew: tries a few orders that are known to be good and keeps the best.
void ChooseInjectionOrder(ReplicaEvaluator* evaluator, Candidate* candidate);

}  // namespace penstock::core
