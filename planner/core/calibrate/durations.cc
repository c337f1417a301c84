#include "planner/core/calibrate/durations.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "planner/core/calibrate/plan_layers.h"
#include "planner/core/comm/build_programs.h"
#include "planner/core/comm/reductions_beside_passes.h"
#include "planner/core/contract/reduce_durations.h"
#include "planner/core/contract/transfer_ends.h"

namespace penstock::core {
namespace {

void SetDuration(const CostModel& costs, const PlanLayers& layers, const ProgramSet& programs, int rank,
                 Instruction* instruction) {
  const RankPlace place = costs.topology().PlaceOf(rank);
  if (IsPass(instruction->op)) {
    instruction->duration_ns =
        layers.PassNs(place.replica, instruction->op, instruction->micro_batch, instruction->stage);
  } else if (instruction->op == Op::kSend || instruction->op == Op::kRecv) {
    const Transfer& transfer = programs.transfers[instruction->joint];
    instruction->duration_ns = costs.TransferNs(transfer.bytes, transfer.from_rank, transfer.to_rank);
  } else if (instruction->op == Op::kReduceGradients) {
    instruction->duration_ns = costs.ReduceNs(instruction->stage, place.tensor);
  } else if (instruction->op == Op::kReshard) {
    instruction->duration_ns = costs.ReshardNs();
  } else if (instruction->op == Op::kOptimizerStep) {
    instruction->duration_ns = costs.StepNs(rank);
  }
}

Op PassOf(v1::Op op) {
  if (op == v1::OP_FORWARD) return Op::kForward;
  if (op == v1::OP_BACKWARD) return Op::kBackward;
  return op == v1::OP_BACKWARD_INPUT ? Op::kBackwardInput : Op::kBackwardWeight;
}

int64_t NsOfTransfer(const CostModel& costs, const v1::Instruction& instruction, int rank) {
  const TransferEnds ends = EndsOfTransfer(rank, instruction);
  return costs.TransferNs(static_cast<int64_t>(instruction.transfer().bytes()), ends.from, ends.to);
}

int64_t OwnDuration(const CostModel& costs, const PlanLayers& layers, const RankPlace& place, int rank,
                    const v1::Instruction& instruction, const JointDurations& joint) {
  const auto stage = static_cast<int>(instruction.stage());
  switch (instruction.op()) {
    case v1::OP_FORWARD:
    case v1::OP_BACKWARD:
    case v1::OP_BACKWARD_INPUT:
    case v1::OP_BACKWARD_WEIGHT:
      return layers.OwnNs(place.replica, PassOf(instruction.op()),
                          static_cast<int>(instruction.micro_batch()), stage, place.context);
    case v1::OP_SEND:
    case v1::OP_RECV:
      return NsOfTransfer(costs, instruction, rank);
    case v1::OP_REDUCE_GRADIENTS:
      return joint.reduce_ns[stage * costs.group().tensor + place.tensor];
    case v1::OP_RESHARD:
      return instruction.part() == kGradientsToShares ? joint.reshards.gradients_ns
                                                      : joint.reshards.parameters_ns;
    case v1::OP_OPTIMIZER_STEP:
      return costs.StepNs(rank);
    default:
      return 0;
  }
}

}  // namespace

absl::Status SetDurations(const v1::Plan& plan, const Batch& batch, const CostModel& costs,
                          ProgramSet* programs) {
  if (costs.has_shares()) programs->reshard = BesidePasses(costs);
  PENSTOCK_ASSIGN_OR_RETURN(const PlanLayers layers, PlanLayers::OfPlan(plan, batch, costs));
  for (int rank = 0; rank < programs->ranks(); ++rank) {
    for (int32_t i = programs->rank_begin[rank]; i < programs->rank_begin[rank + 1]; ++i)
      SetDuration(costs, layers, *programs, rank, &programs->instructions[i]);
  }
  SetReduceDurations(costs, programs);
  return absl::OkStatus();
}

absl::StatusOr<JointDurations> JointDurationsOf(const v1::Plan& plan, const CostModel& costs) {
  if (costs.has_gradient_buckets() && plan.programs_size() != costs.topology().ranks())
    return absl::InvalidArgumentError("plan.programs: not those of the job's ranks");
  JointDurations joint = {.reduce_ns = ReduceDurationsOf(plan, costs)};
  if (costs.has_shares()) joint.reshards = ReshardDurationsOf(plan, costs.ReshardTimes());
  return joint;
}

absl::StatusOr<std::vector<int64_t>> OwnDurations(const v1::Plan& plan, const Batch& batch,
                                                  const CostModel& costs, int rank,
                                                  const JointDurations& joint) {
  if (rank >= plan.programs_size() || plan.programs_size() != costs.topology().ranks())
    return absl::InvalidArgumentError(absl::StrCat("plan.programs: not those of the job with rank ", rank));
  const RankPlace place = costs.topology().PlaceOf(rank);
  PENSTOCK_ASSIGN_OR_RETURN(const PlanLayers layers,
                            PlanLayers::OfReplica(plan, batch, costs, place.replica));
  std::vector<int64_t> durations;
  for (const v1::Instruction& instruction : plan.programs(rank).instructions())
    durations.push_back(OwnDuration(costs, layers, place, rank, instruction, joint));
  return durations;
}

}  // namespace penstock::core
