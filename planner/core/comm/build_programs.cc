#include "planner/core/comm/build_programs.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "planner/core/comm/replica_builder.h"
#include "planner/core/schedule/pipeline_timeline.h"

namespace penstock::core {
namespace {

// By PassKind.
constexpr const char* kPassNames[] = {"FORWARD", "BACKWARD", "BACKWARD_INPUT", "BACKWARD_WEIGHT"};

// Collectives: for each stage one over the replicas, then for each replica one over its ranks.
void AddCollectives(const CostModel& costs, const Topology& topology, ProgramSet* set) {
  const auto add = [&](std::vector<int32_t> ranks, int64_t bytes) {
    const auto group = static_cast<int32_t>(set->groups.size());
    set->collectives.push_back({group, 0, bytes, static_cast<int32_t>(ranks.size())});
    set->groups.push_back(std::move(ranks));
  };
  for (int stage = 0; stage < costs.stages(); ++stage) {
    add(topology.GradientGroup(stage), costs.ParameterBytes(stage));
  }
  for (int replica = 0; replica < topology.replicas(); ++replica) {
    add(topology.PipelineGroup(replica), costs.StepBytes());
  }
}

IterationEnd MakeEnd(const CostModel& costs) {
  IterationEnd end;
  end.steps.resize(costs.ranks());
  for (int stage = costs.stages() - 1; stage >= 0; --stage) {
    Instruction& step = end.steps[costs.rank_of(stage)];
    step.op = Op::kOptimizerStep;
    step.stage = stage;
    step.duration_ns += costs.OptimizerNs(stage);
  }
  for (int stage = 0; stage < costs.stages(); ++stage) {
    Instruction reduction;
    reduction.op = Op::kReduceGradients;
    reduction.stream = Stream::kCollective;
    reduction.stage = stage;
    reduction.joint = stage;
    reduction.duration_ns = costs.ReduceNs(stage);
    end.reductions.push_back(reduction);
  }
  return end;
}

// Appends a rank's program to the set.
void Append(const RankProgram& program, ProgramSet* set) {
  const auto deps_before = static_cast<int32_t>(set->deps.size());
  for (Instruction instruction : program.instructions) {
    instruction.deps_begin += deps_before;
    instruction.deps_end += deps_before;
    set->instructions.push_back(instruction);
  }
  set->deps.insert(set->deps.end(), program.deps.begin(), program.deps.end());
  set->rank_begin.push_back(static_cast<int32_t>(set->instructions.size()));
}

absl::Status Blocked(int replica, const PipelineTimeline& timeline) {
  const Pass& pass = timeline.blocked_pass();
  return absl::InternalError(absl::StrCat("replica ", replica, ": the passes block each other: rank ",
                                          timeline.blocked_rank(), " stands at ",
                                          kPassNames[static_cast<size_t>(pass.kind)], " of micro-batch ",
                                          pass.micro_batch, " on stage ", pass.stage));
}

// Moves a replica's transfers from the numbers of the replica to those of the set.
void AppendTransfers(const std::vector<Transfer>& transfers, const Topology& topology, int replica,
                     ProgramSet* set) {
  const auto before = static_cast<int32_t>(set->transfers.size());
  for (Transfer transfer : transfers) {
    transfer.from_rank = topology.RankAt(replica, transfer.from_rank);
    transfer.to_rank = topology.RankAt(replica, transfer.to_rank);
    transfer.send += set->rank_begin[transfer.from_rank];
    transfer.recv += set->rank_begin[transfer.to_rank];
    set->instructions[transfer.send].joint += before;
    set->instructions[transfer.recv].joint += before;
    set->transfers.push_back(transfer);
  }
}

}  // namespace

absl::StatusOr<ProgramSet> BuildPrograms(const CostModel& costs, absl::Span<const ReplicaPipeline> replicas,
                                         StopToken stop) {
  const Topology topology = costs.topology().WithReplicas(static_cast<int>(replicas.size()));
  ProgramSet set;
  AddCollectives(costs, topology, &set);
  IterationEnd end = MakeEnd(costs);
  PipelineTimeline timeline;
  for (int replica = 0; replica < topology.replicas(); ++replica) {
    const bool ran = timeline.Run(replicas[replica].costs, replicas[replica].passes, stop);
    PENSTOCK_RETURN_IF_ERROR(stop.status());
    if (!ran) return Blocked(replica, timeline);
    for (Instruction& step : end.steps) step.joint = costs.stages() + replica;
    ReplicaBuilder builder(costs, replicas[replica], end);
    const bool built = builder.Build(timeline.events(), stop);
    PENSTOCK_RETURN_IF_ERROR(stop.status());
    if (!built) {
      return absl::InternalError(absl::StrCat("replica ", replica, ": passes are missing"));
    }
    // The set has its ranks in order, as the topology has them.
    for (int position = 0; position < costs.ranks(); ++position) {
      Append(builder.programs()[position], &set);
      set.static_bytes.push_back(costs.RankStaticBytes(position));
    }
    AppendTransfers(builder.transfers(), topology, replica, &set);
  }
  return set;
}

}  // namespace penstock::core
