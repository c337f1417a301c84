#include "planner/core/comm/build_programs.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "planner/core/comm/place_figures.h"
#include "planner/core/comm/reductions_beside_passes.h"
#include "planner/core/comm/replica_builder.h"
#include "planner/core/schedule/pipeline_timeline.h"

namespace penstock::core {
namespace {

// By PassKind.
constexpr const char* kPassNames[] = {"FORWARD", "BACKWARD", "BACKWARD_INPUT", "BACKWARD_WEIGHT"};

// Groups and collectives, as the contract orders them (plan.proto, Plan.groups).
void AddGroup(std::vector<int32_t> ranks, int64_t bytes, ProgramSet* set) {
  const auto group = static_cast<int32_t>(set->groups.size());
  set->collectives.push_back({group, 0, bytes, static_cast<int32_t>(ranks.size())});
  set->groups.push_back(std::move(ranks));
}

// Of all ranks, one after the other: parameters come to the stages, gradients go to the shares, and a step.
void AddCollectivesOfShares(const CostModel& costs, const Topology& topology, ProgramSet* set) {
  const int32_t ranks = topology.ranks();
  set->groups.emplace_back(ranks);
  std::iota(set->groups.back().begin(), set->groups.back().end(), 0);
  for (const ReshardPart part : {kParametersToStages, kGradientsToShares})
    set->collectives.push_back({0, part, costs.ReshardBytes(), ranks});
  set->collectives.push_back({0, kStepOfShares, costs.StepBytes(), ranks});
}

// For each stage and tensor rank the reduction, then for each replica the step.
void AddCollectives(const CostModel& costs, const Topology& topology, ProgramSet* set) {
  if (costs.has_shares()) return AddCollectivesOfShares(costs, topology, set);
  for (int stage = 0; stage < costs.stages(); ++stage) {
    for (int tensor = 0; tensor < costs.group().tensor; ++tensor) {
      AddGroup(topology.GradientGroup(stage, tensor), costs.ParameterBytes(stage), set);
    }
  }
  for (int replica = 0; replica < topology.replicas(); ++replica) {
    AddGroup(topology.PipelineGroup(replica), costs.StepBytes(), set);
  }
}

// Stage groups of several ranks: those of all replicas.
void AddStageGroups(const CostModel& costs, const Topology& topology, ProgramSet* set) {
  if (costs.group().ranks() == 1) return;
  for (int replica = 0; replica < topology.replicas(); ++replica) {
    for (int position = 0; position < costs.positions(); ++position) {
      set->groups.push_back(topology.GroupAt(replica, position));
    }
  }
}

// A collective for each pass of a stage group. Returns the first one's index.
int32_t AddJointPasses(const CostModel& costs, int32_t group, const RankProgram& program, ProgramSet* set) {
  const auto first = static_cast<int32_t>(set->collectives.size());
  if (costs.group().ranks() == 1) return first;
  int32_t sequence = 0;
  for (const Instruction& instruction : program.instructions) {
    if (IsPass(instruction.op)) set->collectives.push_back({group, sequence++, 0, costs.group().ranks()});
  }
  return first;
}

// Appends the program of a rank of the position to the set.
void Append(const RankProgram& program, PlaceFigures figures, ProgramSet* set) {
  const auto deps_before = static_cast<int32_t>(set->deps.size());
  for (Instruction instruction : program.instructions) {
    instruction.deps_begin += deps_before;
    instruction.deps_end += deps_before;
    figures.Fill(&instruction, &set->exchanges);
    set->instructions.push_back(instruction);
  }
  set->deps.insert(set->deps.end(), program.deps.begin(), program.deps.end());
  set->rank_begin.push_back(static_cast<int32_t>(set->instructions.size()));
}

// The passes of a group take as long as on its slowest rank: `begin` and `end` are the programs of its ranks.
void LevelJointPasses(int first_rank, int ranks, ProgramSet* set) {
  const int32_t length = set->rank_begin[first_rank + 1] - set->rank_begin[first_rank];
  for (int32_t i = 0; i < length; ++i) {
    if (!IsPass(set->instructions[set->rank_begin[first_rank] + i].op)) continue;
    int64_t longest = 0;
    for (int rank = first_rank; rank < first_rank + ranks; ++rank) {
      longest = std::max(longest, set->instructions[set->rank_begin[rank] + i].own_ns);
    }
    for (int rank = first_rank; rank < first_rank + ranks; ++rank) {
      set->instructions[set->rank_begin[rank] + i].duration_ns = longest;
    }
  }
}

absl::Status Blocked(int replica, const PipelineTimeline& timeline) {
  const Pass& pass = timeline.blocked_pass();
  return absl::InternalError(absl::StrCat("replica ", replica, ": the passes block each other: rank ",
                                          timeline.blocked_rank(), " stands at ",
                                          kPassNames[static_cast<size_t>(pass.kind)], " of micro-batch ",
                                          pass.micro_batch, " on stage ", pass.stage));
}

// The transfers of a replica's positions, between the ranks of equal places.
void AppendTransfers(const CostModel& costs, const ReplicaPipeline& pipeline,
                     const std::vector<Transfer>& transfers, const Topology& topology, int replica,
                     ProgramSet* set) {
  for (const Transfer& between : transfers) {
    for (int place = 0; place < costs.group().ranks(); ++place) {
      Transfer transfer = between;
      transfer.from_rank = topology.RankAt(replica, between.from_rank, place);
      transfer.to_rank = topology.RankAt(replica, between.to_rank, place);
      transfer.send += set->rank_begin[transfer.from_rank];
      transfer.recv += set->rank_begin[transfer.to_rank];
      Instruction& send = set->instructions[transfer.send];
      Instruction& recv = set->instructions[transfer.recv];
      // The stage before the boundary.
      const int stage = std::min(send.stage, recv.stage);
      const PlaceFigures figures(costs, pipeline, topology, transfer.from_rank, 0);
      transfer.bytes = figures.BoundaryBytes(stage, send.micro_batch);
      send.joint = recv.joint = static_cast<int32_t>(set->transfers.size());
      send.duration_ns = recv.duration_ns = figures.TransferNs(stage, send.micro_batch, transfer.to_rank);
      recv.acquired_bytes = transfer.bytes;
      set->transfers.push_back(transfer);
    }
  }
}

}  // namespace

ReshardBesidePasses BesidePasses(const CostModel& costs) {
  ReshardBesidePasses beside = {.time = costs.ReshardTimes(), .layers = {}};
  for (int stage = 0; stage < costs.stages(); ++stage) beside.layers.push_back(costs.stage(stage).layers());
  return beside;
}

absl::StatusOr<ProgramSet> BuildPrograms(const CostModel& costs, absl::Span<const ReplicaPipeline> replicas,
                                         StopToken stop) {
  const Topology topology = costs.topology().WithReplicas(static_cast<int>(replicas.size()));
  ProgramSet set;
  if (costs.has_shares()) set.reshard = BesidePasses(costs);
  AddCollectives(costs, topology, &set);
  auto stage_group = static_cast<int32_t>(set.groups.size());
  AddStageGroups(costs, topology, &set);
  PipelineTimeline timeline;
  for (int replica = 0; replica < topology.replicas(); ++replica) {
    const ReplicaPipeline& pipeline = replicas[replica];
    const bool ran = timeline.Run(pipeline.costs, pipeline.passes, stop);
    PENSTOCK_RETURN_IF_ERROR(stop.status());
    if (!ran) return Blocked(replica, timeline);
    ReplicaBuilder builder(costs, pipeline);
    const bool built = builder.Build(timeline.events(), stop);
    PENSTOCK_RETURN_IF_ERROR(stop.status());
    if (!built) {
      return absl::InternalError(absl::StrCat("replica ", replica, ": passes are missing"));
    }
    // The set has its ranks in order, as the topology has them.
    for (int position = 0; position < costs.positions(); ++position, ++stage_group) {
      const RankProgram& program = builder.programs()[position];
      const int32_t first_pass = AddJointPasses(costs, stage_group, program, &set);
      const int first_rank = set.ranks();
      for (const int32_t rank : topology.GroupAt(replica, position)) {
        PENSTOCK_RETURN_IF_ERROR(stop.status());
        Append(program, PlaceFigures(costs, pipeline, topology, rank, first_pass), &set);
        set.static_bytes.push_back(costs.StaticBytesOfRank(rank));
      }
      if (costs.group().ranks() > 1) LevelJointPasses(first_rank, costs.group().ranks(), &set);
    }
    AppendTransfers(costs, pipeline, builder.transfers(), topology, replica, &set);
  }
  SetReduceDurations(costs, &set);
  return set;
}

}  // namespace penstock::core
