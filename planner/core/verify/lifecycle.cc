// Rule 4: one forward and one backward pass of every micro-batch on every stage, then the end of the
// iteration. Of a plan that is forward only: one forward pass, and nothing else.
#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/core/verify/rules.h"

namespace penstock::core::verify {
namespace {

using Found = const v1::Instruction*;

void RequireOrder(int rank, Found first, Found second, Report& report) {
  if (first != nullptr && second != nullptr && second->id() < first->id())
    report.AddAt(kLifecycle, rank, *second, absl::StrCat("it comes before ", Describe(*first)));
}

void CheckPasses(const PlanIndex& index, int rank, uint32_t stage, uint32_t micro_batch, Report& report) {
  const auto find = [&](v1::Op op) { return index.Find(rank, op, stage, micro_batch); };
  const Found forward = find(v1::OP_FORWARD);
  const Found backward = find(v1::OP_BACKWARD);
  const Found input = find(v1::OP_BACKWARD_INPUT);
  const Found weight = find(v1::OP_BACKWARD_WEIGHT);
  const auto fail = [&](const char* message) {
    report.AddAt(kLifecycle, rank,
                 absl::StrCat("micro-batch ", micro_batch, " on stage ", stage, " ", message));
  };
  if (forward == nullptr) fail("has no FORWARD");
  if (backward != nullptr && (input != nullptr || weight != nullptr))
    report.AddAt(kLifecycle, rank, *backward, "there is a BACKWARD_INPUT or BACKWARD_WEIGHT beside it");
  if (backward == nullptr && (input == nullptr || weight == nullptr))
    fail("has neither BACKWARD nor both BACKWARD_INPUT and BACKWARD_WEIGHT");
  RequireOrder(rank, forward, backward, report);
  RequireOrder(rank, forward, input, report);
  RequireOrder(rank, input, weight, report);
  const Found recompute = find(v1::OP_RECOMPUTE);
  RequireOrder(rank, forward, recompute, report);
  RequireOrder(rank, recompute, backward, report);
  RequireOrder(rank, recompute, input, report);
}

// Keys are unique in a sound plan; a second pass with the same key is reported as what it is.
void CheckRepeatedPasses(const PlanIndex& index, int rank, Report& report) {
  for (const v1::Instruction& instruction : index.program(rank).instructions()) {
    if (!IsPass(instruction.op())) continue;
    const Found first = index.Find(rank, instruction.op(), instruction.stage(), instruction.micro_batch());
    if (first->id() != instruction.id())
      report.AddAt(kLifecycle, rank, instruction, absl::StrCat("it repeats instruction ", first->id()));
  }
}

// Where parameters are in shares: they come before all passes, gradients go back behind them.
void CheckReshards(const PlanIndex& index, int rank, Report& report) {
  const v1::Program& program = index.program(rank);
  for (const v1::Instruction& instruction : program.instructions()) {
    if (instruction.op() == v1::OP_REDUCE_GRADIENTS)
      report.AddAt(kLifecycle, rank, instruction, "with options.parameter_shares nothing is reduced");
    if (instruction.op() == v1::OP_RESHARD && instruction.stage() != index.LowestStageOf(rank))
      report.AddAt(kLifecycle, rank, instruction,
                   absl::StrCat("its stage is not the lowest of the rank, ", index.LowestStageOf(rank)));
  }
  const Found parameters = index.FindReshard(rank, kParametersToStages);
  const Found gradients = index.FindReshard(rank, kGradientsToShares);
  if (parameters == nullptr || parameters->id() != 0)
    report.AddAt(kLifecycle, rank, "it does not begin with the RESHARD of its parameters");
  if (gradients == nullptr) return report.AddAt(kLifecycle, rank, "it has no RESHARD of its gradients");
  for (const v1::Instruction& instruction : program.instructions()) {
    if (IsPass(instruction.op()) && instruction.id() > gradients->id())
      report.AddAt(kLifecycle, rank, instruction, absl::StrCat("it comes after ", Describe(*gradients)));
  }
}

void CheckReductions(const PlanIndex& index, int rank, Report& report) {
  for (const v1::Instruction& instruction : index.program(rank).instructions()) {
    if (instruction.op() == v1::OP_RESHARD)
      report.AddAt(kLifecycle, rank, instruction, "only plans with options.parameter_shares have it");
    const Found reduce = index.Find(rank, v1::OP_REDUCE_GRADIENTS, instruction.stage(), 0);
    if (IsPass(instruction.op()) && reduce != nullptr && instruction.id() > reduce->id())
      report.AddAt(kLifecycle, rank, instruction, absl::StrCat("it comes after ", Describe(*reduce)));
  }
  for (uint32_t stage : index.program(rank).stages())
    if (index.Find(rank, v1::OP_REDUCE_GRADIENTS, stage, 0) == nullptr)
      report.AddAt(kLifecycle, rank, absl::StrCat("stage ", stage, " has no REDUCE_GRADIENTS"));
}

void CheckStep(const PlanIndex& index, int rank, Report& report) {
  const v1::Program& program = index.program(rank);
  int steps = 0;
  for (const v1::Instruction& instruction : program.instructions()) {
    if (instruction.op() != v1::OP_OPTIMIZER_STEP) continue;
    ++steps;
    if (static_cast<int>(instruction.id()) != program.instructions_size() - 1)
      report.AddAt(kLifecycle, rank, instruction, "it is not the last instruction");
    const uint32_t lowest = index.LowestStageOf(rank);
    if (instruction.stage() != lowest)
      report.AddAt(kLifecycle, rank, instruction,
                   absl::StrCat("its stage is not the lowest of the rank, ", lowest));
  }
  if (steps != 1) report.AddAt(kLifecycle, rank, absl::StrCat("it has ", steps, " OPTIMIZER_STEP, not one"));
}

// What learns, or is a gradient's.
bool IsOfLearning(const v1::Instruction& instruction) {
  switch (instruction.op()) {
    case v1::OP_SEND:
    case v1::OP_RECV:
      return instruction.part() == kGradient;
    case v1::OP_WAIT:
      return instruction.part() == kWaitReceivedGradient || instruction.part() == kWaitSentGradient;
    case v1::OP_FREE:
      return instruction.part() == kFreeInputGradient;
    case v1::OP_RESHARD:
      return instruction.part() == kGradientsToShares;
    case v1::OP_LOAD:
    case v1::OP_FORWARD:
      return false;
    default:
      return true;
  }
}

void CheckForwardOnly(const PlanIndex& index, int rank, Report& report) {
  for (const v1::Instruction& instruction : index.program(rank).instructions()) {
    if (IsOfLearning(instruction))
      report.AddAt(kLifecycle, rank, instruction,
                   "a plan that is forward_only learns nothing, and has no such");
    const bool reshards = instruction.op() == v1::OP_RESHARD;
    if (reshards && !index.has_shares())
      report.AddAt(kLifecycle, rank, instruction, "only plans with options.parameter_shares have it");
    if (reshards && instruction.stage() != index.LowestStageOf(rank))
      report.AddAt(kLifecycle, rank, instruction,
                   absl::StrCat("its stage is not the lowest of the rank, ", index.LowestStageOf(rank)));
  }
  for (const uint32_t stage : index.program(rank).stages())
    for (int m = 0; m < index.MicroBatches(index.ReplicaOf(rank)); ++m)
      if (index.Find(rank, v1::OP_FORWARD, stage, m) == nullptr)
        report.AddAt(kLifecycle, rank,
                     absl::StrCat("micro-batch ", m, " on stage ", stage, " has no FORWARD"));
  if (!index.has_shares()) return;
  const Found parameters = index.FindReshard(rank, kParametersToStages);
  if (parameters == nullptr || parameters->id() != 0)
    report.AddAt(kLifecycle, rank, "it does not begin with the RESHARD of its parameters");
}

void CheckEnd(const PlanIndex& index, int rank, Report& report) {
  CheckStep(index, rank, report);
  index.has_shares() ? CheckReshards(index, rank, report) : CheckReductions(index, rank, report);
}

}  // namespace

void CheckLifecycle(const PlanIndex& index, Report& report) {
  for (int rank = 0; rank < index.ranks() && !index.stopped(); ++rank) {
    if (index.forward_only()) {
      CheckForwardOnly(index, rank, report);
      continue;
    }
    const int micro_batches = index.MicroBatches(index.ReplicaOf(rank));
    for (uint32_t stage : index.program(rank).stages())
      for (int m = 0; m < micro_batches; ++m) CheckPasses(index, rank, stage, m, report);
    CheckRepeatedPasses(index, rank, report);
    CheckEnd(index, rank, report);
  }
}

}  // namespace penstock::core::verify
