#include "planner/core/timeline/operation_of_instruction.h"

#include "planner/core/contract/passes.h"

namespace penstock::core {

const char* OperationName(const v1::Instruction& instruction) {
  const bool gradient = instruction.transfer().kind() == v1::TRANSFER_KIND_GRADIENT;
  switch (instruction.op()) {
    case v1::OP_LOAD:
      return "load";
    case v1::OP_FORWARD:
      return "forward-compute";
    case v1::OP_BACKWARD:
      return "backward-compute";
    case v1::OP_BACKWARD_INPUT:
      return "backward-input";
    case v1::OP_BACKWARD_WEIGHT:
      return "backward-weight";
    case v1::OP_SEND:
      return gradient ? "backward-send" : "forward-send";
    case v1::OP_RECV:
      return gradient ? "backward-recv" : "forward-recv";
    case v1::OP_REDUCE_GRADIENTS:
      return "grads-reduce";
    case v1::OP_RESHARD:
      return instruction.part() == 0 ? "params-gather" : "grads-scatter";
    case v1::OP_OPTIMIZER_STEP:
      return "optimizer";
    default:
      return "wait";
  }
}

bool IsLonePass(const v1::Instruction& instruction) {
  return IsPass(instruction.op()) && !instruction.has_collective();
}

bool IsArrival(const v1::Program& program, const v1::Instruction& instruction) {
  return instruction.op() == v1::OP_WAIT &&
         instruction.transfer_id() < static_cast<uint32_t>(program.instructions_size()) &&
         program.instructions(static_cast<int>(instruction.transfer_id())).op() == v1::OP_RECV;
}

uint32_t PositionOf(const v1::Program& program) { return program.stages().empty() ? 0 : program.stages(0); }

int StreamOf(const v1::Instruction& instruction) {
  const int stream = instruction.stream();
  return stream >= v1::STREAM_COMPUTE && stream <= v1::STREAM_COLLECTIVE ? stream : 0;
}

}  // namespace penstock::core
