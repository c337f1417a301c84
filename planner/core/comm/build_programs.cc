#include "planner/core/comm/build_programs.h"

#include <numeric>

#include "planner/core/comm/replica_builder.h"
#include "planner/core/schedule/pipeline_timeline.h"

namespace penstock::core {
namespace {

// Bytes of the global gradient norm that the ranks of a pipeline exchange.
constexpr int64_t kNormBytes = 8;

// Collectives: for each stage one over the replicas, then for each replica one over the stages.
void AddCollectives(const CostModel& costs, int replicas, ProgramSet* set) {
  const int stages = costs.stages();
  for (int stage = 0; stage < stages; ++stage) {
    std::vector<int32_t> ranks(replicas);
    for (int replica = 0; replica < replicas; ++replica) ranks[replica] = replica * stages + stage;
    set->groups.push_back(ranks);
    set->collectives.push_back({stage, 0, costs.ParameterBytes(stage), replicas});
  }
  for (int replica = 0; replica < replicas; ++replica) {
    std::vector<int32_t> ranks(stages);
    std::iota(ranks.begin(), ranks.end(), replica * stages);
    set->groups.push_back(ranks);
    set->collectives.push_back({stages + replica, 0, kNormBytes, stages});
  }
}

void AddEnd(const CostModel& costs, int replicas, int replica, int stage, RankProgram* program) {
  Instruction reduce;
  reduce.op = Op::kReduceGradients;
  reduce.stream = Stream::kCollective;
  reduce.stage = stage;
  reduce.joint = stage;
  reduce.duration_ns = costs.AllReduceNs(costs.ParameterBytes(stage), stage, costs.stages(), replicas);
  const int32_t reduced = program->Add(reduce, {program->last_backward});
  Instruction step;
  step.op = Op::kOptimizerStep;
  step.stage = stage;
  step.joint = costs.stages() + replica;
  step.duration_ns = costs.OptimizerNs(stage);
  program->Add(step, {reduced});
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

ProgramSet BuildPrograms(const CostModel& costs, absl::Span<const ReplicaPipeline> replicas) {
  const int count = static_cast<int>(replicas.size());
  ProgramSet set;
  AddCollectives(costs, count, &set);
  PipelineTimeline timeline;
  for (int replica = 0; replica < count; ++replica) {
    ReplicaBuilder builder(costs, replicas[replica]);
    builder.Build(timeline.Run(replicas[replica].costs, replicas[replica].order));
    for (int stage = 0; stage < costs.stages(); ++stage) {
      AddEnd(costs, count, replica, stage, &builder.programs()[stage]);
      Append(builder.programs()[stage], &set);
      set.static_bytes.push_back(costs.StaticBytes(stage));
    }
    AppendTransfers(builder.transfers(), replica * costs.stages(), &set);
  }
  return set;
}

}  // namespace penstock::core
