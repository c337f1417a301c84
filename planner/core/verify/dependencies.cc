// Rule 3: deps exist, are acyclic together with stream order, and order every use of data after what makes
// it.
//
// A dep names an earlier instruction and streams run in the order of the program, so a rank's order is
// acyclic by construction; cycles through transfers are what the rendezvous simulation finds.
#include "absl/strings/str_cat.h"
#include "planner/core/verify/execution_order.h"
#include "planner/core/verify/rules.h"

namespace penstock::core::verify {
namespace {

using Found = const v1::Instruction*;

v1::Stream ExpectedStream(const v1::Instruction& instruction) {
  switch (instruction.op()) {
    case v1::OP_SEND:
      return instruction.part() == kActivation ? v1::STREAM_NEXT : v1::STREAM_PREVIOUS;
    case v1::OP_RECV:
      return instruction.part() == kActivation ? v1::STREAM_PREVIOUS : v1::STREAM_NEXT;
    case v1::OP_REDUCE_GRADIENTS:
    case v1::OP_RESHARD:
      return v1::STREAM_COLLECTIVE;
    default:
      return v1::STREAM_COMPUTE;
  }
}

void CheckDeps(int rank, const v1::Program& program, const v1::Instruction& instruction, Report& report) {
  const auto size = static_cast<uint32_t>(program.instructions_size());
  for (uint32_t dep : instruction.deps()) {
    if (dep >= size) {
      report.AddAt(kDependencies, rank, instruction,
                   absl::StrCat("it depends on instruction ", dep, ", but the program has ", size));
    } else if (dep == instruction.id()) {
      report.AddAt(kDependencies, rank, instruction, "it depends on itself");
    } else if (dep > instruction.id()) {
      report.AddAt(
          kDependencies, rank, instruction,
          absl::StrCat("it depends on the later ", Describe(program.instructions(static_cast<int>(dep)))));
    }
  }
  if (instruction.stream() != ExpectedStream(instruction))
    report.AddAt(kDependencies, rank, instruction,
                 absl::StrCat("it is on stream ", static_cast<int>(instruction.stream()), ", not on ",
                              v1::Stream_Name(ExpectedStream(instruction))));
}

// The data flow of one micro-batch on one stage.
class DataFlow {
 public:
  DataFlow(const PlanIndex& index, const ExecutionOrder& order, int rank, uint32_t stage,
           uint32_t micro_batch, Report& report)
      : index_(index),
        order_(order),
        rank_(rank),
        replica_(index.ReplicaOf(rank)),
        stage_(stage),
        micro_batch_(micro_batch),
        report_(report) {
    backward_ = Find(v1::OP_BACKWARD);
    if (backward_ == nullptr) backward_ = Find(v1::OP_BACKWARD_INPUT);
    forward_ = Find(v1::OP_FORWARD);
  }

  void Check() {
    const bool first = stage_ == 0;
    const bool last = static_cast<int>(stage_) + 1 == index_.StagesOf(replica_);
    Require(forward_, backward_);
    Require(Find(v1::OP_BACKWARD_INPUT), Find(v1::OP_BACKWARD_WEIGHT));
    Require(forward_, Find(v1::OP_RECOMPUTE));
    Require(Find(v1::OP_RECOMPUTE), backward_);
    CheckLoad(index_.NeedsTokens(replica_, stage_));
    if (!first) CheckLowerBoundary();
    if (!last) CheckUpperBoundary();
    Require(LastBackward(), index_.Find(rank_, v1::OP_REDUCE_GRADIENTS, stage_, 0));
    Require(index_.FindReshard(rank_, kParametersToStages), forward_);
    Require(LastBackward(), index_.FindReshard(rank_, kGradientsToShares));
  }

 private:
  Found Find(v1::Op op, uint32_t part = 0) const {
    return index_.Find(rank_, op, stage_, micro_batch_, part);
  }

  Found LastBackward() const {
    const Found weight = Find(v1::OP_BACKWARD_WEIGHT);
    return weight != nullptr ? weight : backward_;
  }

  void CheckLoad(bool needed) {
    const Found load = Find(v1::OP_LOAD);
    if (load == nullptr && needed && forward_ != nullptr)
      report_.AddAt(kDependencies, rank_, *forward_, "there is no LOAD for the tokens it needs");
    if (load != nullptr && !needed)
      report_.AddAt(kDependencies, rank_, *load, "the stage neither embeds tokens nor has the loss");
    Require(load, forward_);
    Require(forward_, Find(v1::OP_FREE, kFreeLoadedTokens));
    Require(LastBackward(), Find(v1::OP_FREE, kFreeLoadedTokens));
  }

  // Activation in, gradient out.
  void CheckLowerBoundary() {
    if (!index_.CrossesRanks(replica_, stage_ - 1))
      return Require(Local(v1::OP_FORWARD, stage_ - 1), forward_);
    CheckReceived(kActivation, kWaitReceivedActivation, forward_);
    CheckSent(backward_, kGradient, kWaitSentGradient, kFreeInputGradient);
  }

  // Activation out, gradient in.
  void CheckUpperBoundary() {
    if (!index_.CrossesRanks(replica_, stage_)) {
      const Found above = Local(v1::OP_BACKWARD, stage_ + 1);
      return Require(above != nullptr ? above : Local(v1::OP_BACKWARD_INPUT, stage_ + 1), backward_);
    }
    CheckSent(forward_, kActivation, kWaitSentActivation, kFreeOutputActivation);
    CheckReceived(kGradient, kWaitReceivedGradient, backward_);
  }

  Found Local(v1::Op op, uint32_t stage) const { return index_.Find(rank_, op, stage, micro_batch_); }

  void CheckReceived(TransferPart part, WaitPart wait_part, Found user) {
    const Found recv = Find(v1::OP_RECV, part);
    const Found wait = FindWait(recv, wait_part);
    if (wait == nullptr && user != nullptr && recv != nullptr)
      report_.AddAt(kDependencies, rank_, *user,
                    absl::StrCat("there is no WAIT for its data, ", Describe(*recv)));
    Require(recv, wait);
    Require(wait, user);
  }

  void CheckSent(Found maker, TransferPart part, WaitPart wait_part, FreePart free_part) {
    const Found send = Find(v1::OP_SEND, part);
    const Found wait = FindWait(send, wait_part);
    const Found release = Find(v1::OP_FREE, free_part);
    if (wait == nullptr && send != nullptr)
      report_.AddAt(kDependencies, rank_, *send, "there is no WAIT for its end");
    Require(maker, send);
    Require(send, wait);
    Require(wait, release);
  }

  Found FindWait(Found transfer, WaitPart part) {
    const Found wait = Find(v1::OP_WAIT, part);
    if (wait != nullptr && transfer != nullptr && wait->transfer_id() != transfer->id())
      report_.AddAt(
          kDependencies, rank_, *wait,
          absl::StrCat("its transfer_id is ", wait->transfer_id(), ", not that of ", Describe(*transfer)));
    return wait;
  }

  // Missing instructions are for other rules to report.
  void Require(Found first, Found second) {
    if (first == nullptr || second == nullptr || order_.IsBefore(*first, *second)) return;
    report_.AddAt(kDependencies, rank_, *second,
                  absl::StrCat("neither deps nor stream order put it after ", Describe(*first)));
  }

  const PlanIndex& index_;
  const ExecutionOrder& order_;
  const int rank_;
  const int replica_;
  const uint32_t stage_;
  const uint32_t micro_batch_;
  Report& report_;
  Found forward_ = nullptr;
  // BACKWARD or BACKWARD_INPUT: what makes the gradient of the input.
  Found backward_ = nullptr;
};

void CheckOptimizerStep(const PlanIndex& index, const ExecutionOrder& order, int rank, Report& report) {
  for (const v1::Instruction& step : index.program(rank).instructions()) {
    if (step.op() != v1::OP_OPTIMIZER_STEP) continue;
    const auto require = [&](Found earlier) {
      if (earlier != nullptr && !order.IsBefore(*earlier, step))
        report.AddAt(kDependencies, rank, step,
                     absl::StrCat("neither deps nor stream order put it after ", Describe(*earlier)));
    };
    for (uint32_t stage : index.program(rank).stages())
      require(index.Find(rank, v1::OP_REDUCE_GRADIENTS, stage, 0));
    require(index.FindReshard(rank, kGradientsToShares));
  }
}

}  // namespace

void CheckDependencies(const PlanIndex& index, Report& report) {
  for (int rank = 0; rank < index.ranks() && !index.stopped(); ++rank) {
    const v1::Program& program = index.program(rank);
    for (const v1::Instruction& instruction : program.instructions())
      CheckDeps(rank, program, instruction, report);
    const ExecutionOrder order(program);
    for (uint32_t stage : program.stages())
      for (int m = 0; m < index.MicroBatches(index.ReplicaOf(rank)); ++m)
        DataFlow(index, order, rank, stage, m, report).Check();
    CheckOptimizerStep(index, order, rank, report);
  }
}

}  // namespace penstock::core::verify
