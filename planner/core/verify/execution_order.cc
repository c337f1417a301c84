#include "planner/core/verify/execution_order.h"

#include <algorithm>

namespace penstock::core::verify {
namespace {

int SlotOf(int stream) {
  return stream >= v1::STREAM_COMPUTE && stream <= v1::STREAM_COLLECTIVE ? stream : 0;
}

int StreamSlot(const v1::Instruction& instruction) { return SlotOf(instruction.stream()); }

}  // namespace

ExecutionOrder::ExecutionOrder(const v1::Program& program) : clocks_(program.instructions_size()) {
  Clock last_of_stream;
  last_of_stream.fill(-1);
  for (int id = 0; id < program.instructions_size(); ++id) {
    const v1::Instruction& instruction = program.instructions(id);
    Clock& clock = clocks_[id];
    clock.fill(-1);
    const auto follow = [&](int64_t earlier) {
      for (int s = 0; s < kStreams; ++s) clock[s] = std::max(clock[s], clocks_[earlier][s]);
      int64_t& own = clock[StreamSlot(program.instructions(static_cast<int>(earlier)))];
      own = std::max(own, earlier);
    };
    int64_t& last = last_of_stream[StreamSlot(instruction)];
    if (last >= 0) follow(last);
    for (uint32_t dep : instruction.deps())
      if (dep < static_cast<uint32_t>(id)) follow(dep);
    last = id;
  }
}

bool ExecutionOrder::IsBefore(const v1::Instruction& first, const v1::Instruction& second) const {
  return clocks_[second.id()][StreamSlot(first)] >= static_cast<int64_t>(first.id());
}

int64_t ExecutionOrder::LastBefore(const v1::Instruction& instruction, v1::Stream stream) const {
  return clocks_[instruction.id()][SlotOf(stream)];
}

}  // namespace penstock::core::verify
