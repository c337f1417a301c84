#include "planner/core/comm/build_programs.h"

#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/core/comm/replica_builder.h"
#include "planner/core/schedule/pipeline_timeline.h"

namespace penstock::core {
namespace {

// Bytes of the global gradient norm that the ranks of a pipeline exchange.
constexpr int64_t kNormBytes = 8;

// By PassKind.
constexpr const char* kPassNames[] = {"FORWARD", "BACKWARD", "BACKWARD_INPUT", "BACKWARD_WEIGHT"};

// Collectives: for each stage one over the replicas, then for each replica one over its ranks.
void AddCollectives(const CostModel& costs, int replicas, ProgramSet* set) {
  const int stages = costs.stages();
  for (int stage = 0; stage < stages; ++stage) {
    std::vector<int32_t> ranks(replicas);
    for (int replica = 0; replica < replicas; ++replica) {
      ranks[replica] = replica * costs.ranks() + costs.rank_of(stage);
    }
    set->groups.push_back(ranks);
    set->collectives.push_back({stage, 0, costs.ParameterBytes(stage), replicas});
  }
  for (int replica = 0; replica < replicas; ++replica) {
    std::vector<int32_t> ranks(costs.ranks());
    std::iota(ranks.begin(), ranks.end(), replica * costs.ranks());
    set->groups.push_back(ranks);
    set->collectives.push_back({stages + replica, 0, kNormBytes, costs.ranks()});
  }
}

IterationEnd MakeEnd(const CostModel& costs, int replicas) {
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
    reduction.duration_ns =
        costs.AllReduceNs(costs.ParameterBytes(stage), costs.rank_of(stage), costs.ranks(), replicas);
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
void AppendTransfers(const std::vector<Transfer>& transfers, int first_rank, ProgramSet* set) {
  const auto before = static_cast<int32_t>(set->transfers.size());
  for (Transfer transfer : transfers) {
    transfer.from_rank += first_rank;
    transfer.to_rank += first_rank;
    transfer.send += set->rank_begin[transfer.from_rank];
    transfer.recv += set->rank_begin[transfer.to_rank];
    set->instructions[transfer.send].joint += before;
    set->instructions[transfer.recv].joint += before;
    set->transfers.push_back(transfer);
  }
}

}  // namespace

absl::StatusOr<ProgramSet> BuildPrograms(const CostModel& costs, absl::Span<const ReplicaPipeline> replicas) {
  const int count = static_cast<int>(replicas.size());
  ProgramSet set;
  AddCollectives(costs, count, &set);
  IterationEnd end = MakeEnd(costs, count);
  PipelineTimeline timeline;
  for (int replica = 0; replica < count; ++replica) {
    if (!timeline.Run(replicas[replica].costs, replicas[replica].passes)) return Blocked(replica, timeline);
    for (Instruction& step : end.steps) step.joint = costs.stages() + replica;
    ReplicaBuilder builder(costs, replicas[replica], end);
    if (!builder.Build(timeline.events())) {
      return absl::InternalError(absl::StrCat("replica ", replica, ": passes are missing"));
    }
    for (int rank = 0; rank < costs.ranks(); ++rank) {
      Append(builder.programs()[rank], &set);
      set.static_bytes.push_back(costs.RankStaticBytes(rank));
    }
    AppendTransfers(builder.transfers(), replica * costs.ranks(), &set);
  }
  return set;
}

}  // namespace penstock::core
