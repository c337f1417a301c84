// Makes the programs of all ranks from the pipelines of the replicas: inserts LOAD, SEND, RECV, WAIT and FREE
// around the passes, then the reduction of gradients and the optimizer step.
//
// Why no plan can deadlock: every list is cut, in order, from one sequence of events of the whole replica. A
// transfer stands in the lists of both its ends where it starts in that sequence, a pass where it ends, a
// WAIT where the pass that needs it starts, that is after the transfer has ended. So the ranks can issue
// their instructions one at a time, each waiting for the one before, even if both ends of a transfer block
// until it is over: the sequence itself is such an execution. It also puts every RECV in front of the pass
// during which its transfer starts, so that a runtime which issues instructions one by one posts it early.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "planner/core/cost/cost_model.h"
#include "planner/core/program/program_set.h"
#include "planner/core/schedule/pipeline.h"

namespace penstock::core {

// A replica whose micro-batches, order and recompute are decided. Arrays as in PipelineCosts.
struct ReplicaPipeline {
  PipelineCosts costs;
  std::vector<StageMemory> memory;
  std::vector<StageRecompute> recompute;
  PassOrder order;
};

// One ReplicaPipeline for each replica; each with at least one micro-batch, or none at all.
ProgramSet BuildPrograms(const CostModel& costs, absl::Span<const ReplicaPipeline> replicas);

}  // namespace penstock::core
