// A complete answer before its programs are made: micro-batches in slots of a table, and for each replica
// their order, schedule rules and recompute.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/core/parallel/stop.h"
#include "planner/core/partition/groups.h"
#include "planner/core/search/micro_batch_table.h"
#include "planner/core/search/replica_evaluator.h"
#include "planner/core/search/replica_speeds.h"
#include "planner/core/search/schedule_space.h"

namespace penstock::core {

struct CandidateReplica {
  // In the order in which they enter the pipeline.
  std::vector<int32_t> slots;
  ScheduleRules rules;
  int64_t makespan = 0;
};

struct Candidate {
  using Rows = MicroBatchTable::Rows;

  Candidate(const ScheduleSpace& space, absl::Span<const SampleTokens> tokens, Rows rows = Rows::kPlaced)
      : table(space.costs(), tokens, space.LowestLevels(), space.buffers(), space.RoomOfRank(), rows,
              {ContextSlowness(space.costs(), space.topology(), tokens), space.places_by_speed()}),
        stop(space.stop()) {}

  MicroBatchTable table;
  std::vector<CandidateReplica> replicas;
  // For each replica its passes in the order in which they ran when it was last scheduled.
  std::vector<std::vector<Pass>> orders;
  // The largest of the replicas; kInfeasibleNs when one cannot run.
  int64_t makespan = kInfeasibleNs;
  // Of the fastest one that was known where this one was taken for being steadier; else kInfeasibleNs.
  int64_t fastest = kInfeasibleNs;
  // Of its space. A candidate that was made or changed when it had stopped is of no worth: it may lack slots
  // and replicas.
  StopToken stop;
};

// Makes a candidate of groups: a slot for each, divided over replicas longest first, each to the replica with
// least work; in a replica they stay in the order of the groups. Splits the largest groups when there are
// fewer than replicas. Rules are those of ScheduleSpace::Fit. `row`: of the concatenated layout.
Candidate MakeCandidate(const ScheduleSpace& space, absl::Span<const SampleTokens> tokens, Groups groups,
                        Layout layout, RowLengths row = {}, Candidate::Rows rows = Candidate::Rows::kPlaced);

// Makes a candidate whose replicas are given; empty groups are left out.
Candidate MakeCandidate(const ScheduleSpace& space, absl::Span<const SampleTokens> tokens,
                        std::vector<Groups> replicas, Layout layout,
                        Candidate::Rows rows = Candidate::Rows::kPlaced);

// Fills the makespans. kInfeasibleNs, too, for one that ends after `give_up_ns`.
void Evaluate(ReplicaEvaluator* evaluator, Candidate* candidate, int64_t give_up_ns = kInfeasibleNs);
void EvaluateReplica(ReplicaEvaluator* evaluator, int replica, Candidate* candidate,
                     int64_t give_up_ns = kInfeasibleNs);
// After a change of a replica's makespan.
void SetMakespan(Candidate* candidate);

// Brings the figures of a replica's slots in line with their levels, and with who runs them.
void UpdateReplica(int replica, Candidate* candidate);

// Orders each replica anew: tries a few orders that are known to be good and keeps the best.
void ChooseInjectionOrder(ReplicaEvaluator* evaluator, Candidate* candidate);

}  // namespace penstock::core
