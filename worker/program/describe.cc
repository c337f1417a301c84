#include "worker/program/describe.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace penstock::worker {
namespace {

std::string Place(const Instruction& instruction) {
  return absl::StrCat("micro-batch ", instruction.micro_batch, " on stage ", instruction.stage);
}

std::string DescribeTransfer(const Program& program, const Instruction& instruction) {
  const Transfer& transfer = program.transfers[instruction.transfer];
  return absl::StrCat(OpName(instruction.op), " of the ",
                      transfer.kind == TransferKind::kActivation ? "activation" : "gradient", " of ",
                      Place(instruction), instruction.op == Op::kSend ? ", to rank " : ", from rank ",
                      transfer.peer);
}

std::string DescribeCollective(const Program& program, const Instruction& instruction) {
  const bool reshards = instruction.op == Op::kReshard;
  const bool of_gradients = instruction.part == static_cast<uint32_t>(ReshardPart::kGradients);
  return absl::StrCat(OpName(instruction.op),
                      !reshards      ? ""
                      : of_gradients ? " of the gradients"
                                     : " of the parameters",
                      " with ranks ", absl::StrJoin(program.groups[instruction.group], ", "));
}

std::string DescribeWork(const Program& program, const Instruction& instruction) {
  switch (instruction.op) {
    case Op::kSend:
    case Op::kRecv:
      return DescribeTransfer(program, instruction);
    case Op::kWait:
      return absl::StrCat("WAIT for the ",
                          DescribeTransfer(program, program.instructions[instruction.transfer]));
    case Op::kReduceGradients:
    case Op::kReshard:
    case Op::kOptimizerStep:
      return DescribeCollective(program, instruction);
    case Op::kLoad:
    case Op::kForward:
    case Op::kBackward:
    case Op::kBackwardInput:
    case Op::kBackwardWeight:
    case Op::kFree:
      break;
  }
  return absl::StrCat(OpName(instruction.op), " of ", Place(instruction));
}

}  // namespace

const char* OpName(Op op) {
  switch (op) {
    case Op::kLoad:
      return "LOAD";
    case Op::kForward:
      return "FORWARD";
    case Op::kBackward:
      return "BACKWARD";
    case Op::kBackwardInput:
      return "BACKWARD_INPUT";
    case Op::kBackwardWeight:
      return "BACKWARD_WEIGHT";
    case Op::kSend:
      return "SEND";
    case Op::kRecv:
      return "RECV";
    case Op::kWait:
      return "WAIT";
    case Op::kFree:
      return "FREE";
    case Op::kReduceGradients:
      return "REDUCE_GRADIENTS";
    case Op::kReshard:
      return "RESHARD";
    case Op::kOptimizerStep:
      return "OPTIMIZER_STEP";
  }
  return "?";
}

std::string Describe(const Program& program, const Instruction& instruction) {
  return absl::StrCat("instruction ", instruction.id, " (", DescribeWork(program, instruction), ")");
}

}  // namespace penstock::worker
