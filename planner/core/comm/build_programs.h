// Makes the programs of all ranks from the pipelines of the replicas: inserts LOAD, SEND, RECV, WAIT and FREE
// around the passes, then the reduction of gradients and the optimizer step.
//
// Why no plan can deadlock: every list is cut, in order, from one sequence of events of the whole replica. A
// transfer stands in the lists of both its ends where it starts in that sequence, a pass where it ends, a
// WAIT where the pass that needs it starts, that is after the transfer has ended. So the ranks can issue
// their instructions one at a time, each waiting for the one before, even if both ends of a transfer block
// until it is over: the sequence itself is such an execution. It also puts every RECV in front of the pass
// during which its transfer starts, so that a runtime which issues instructions one by one posts it early.
//
// A RECV depends on the instruction of the compute stream that stands last before it, which has ended when
// the transfer starts: times are the same, but no runtime can take its buffer before the sequence does. So
// memory peaks in no order that streams and deps allow higher than in the order of the program.
//
// The gradients of a stage are reduced as soon as its last backward pass has run and its last gradient is on
// its way, but stages in descending order over the whole pipeline. All replicas reduce in that one order, so
// their sequences can be run side by side, each waiting at a reduction for the others: no replica waits for
// what another one runs only later.
//
// Programs are made once for each position, and then for each rank of its stage group: instructions, their
// order and deps are the same; times, bytes and peers are the rank's own (place_figures.h). Passes of a group
// are joint: its ranks list them in one order and start each together, as they do collectives; so what is
// said above of the programs of positions holds for those of ranks.
//
// Memory of a micro-batch on a stage: FORWARD takes what is stored and the output; BACKWARD takes the
// transient peak and the gradient of its input, and gives back all but that gradient. BACKWARD_INPUT instead
// leaves what is put aside, until BACKWARD_WEIGHT. Between stages on one rank nothing is sent: the lower
// stage's output is the upper one's input, and its place then holds the gradient that comes back; it belongs
// to the lower stage from its FORWARD to its BACKWARD (or BACKWARD_INPUT).
//
// Programs that are forward only have no passes back, no reduction and no step. A FORWARD gives back at its
// end all that it took but its output, and the input that the stage below made.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "planner/core/cost/cost_model.h"
#include "planner/core/parallel/stop.h"
#include "planner/core/program/program_set.h"
#include "planner/core/schedule/pipeline.h"

namespace penstock::core {

// With shares of parameters, the place of the step among the collectives of all ranks: behind the two
// RESHARDs, which are at the places of their parts.
inline constexpr int32_t kStepOfShares = 2;

// What one context rank of a stage group takes alone for a micro-batch on a stage.
struct ContextPass {
  int64_t forward_ns = 0;
  int64_t backward_ns = 0;
  int64_t weight_ns = 0;
  PassExchange forward;
  PassExchange backward;
  // Its tokens.
  TokenSums sums;
};

// A replica whose micro-batches, passes and recompute are decided. Arrays as in PipelineCosts, whose times
// are those of the slowest rank of each stage group.
struct ReplicaPipeline {
  PipelineCosts costs;
  // [(micro_batch * stages + stage) * context ranks + context rank].
  std::vector<StageMemory> memory;
  std::vector<StageRecompute> recompute;
  RankPasses passes;
  // As `memory`; empty where one rank holds a stage.
  std::vector<ContextPass> contexts;

  // Its passes are FORWARD alone.
  bool forward_only() const { return costs.forward_ahead > 0; }
};

// For ProgramSet::reshard, of a job with shares of parameters.
ReshardBesidePasses BesidePasses(const CostModel& costs);

// One ReplicaPipeline for each replica; each with at least one micro-batch, or none at all. There may be
// fewer than the topology of `costs` has: then they are all there are. Possible errors: INTERNAL (a replica's
// passes block each other, or some are missing: names where), CANCELLED.
absl::StatusOr<ProgramSet> BuildPrograms(const CostModel& costs, absl::Span<const ReplicaPipeline> replicas,
                                         StopToken stop = {});

}  // namespace penstock::core
