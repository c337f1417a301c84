#include "planner/core/simulate/memory_account.h"

#include <algorithm>

namespace penstock::core {

RankMemory AccountMemory(const ProgramSet& programs, int rank) {
  RankMemory memory;
  int64_t bytes = programs.static_bytes[rank];
  const int32_t begin = programs.rank_begin[rank];
  for (int32_t i = begin; i < programs.rank_begin[rank + 1]; ++i) {
    bytes += programs.instructions[i].acquired_bytes;
    if (bytes > memory.peak_bytes) {
      memory.peak_bytes = bytes;
      memory.peak_instruction = i - begin;
    }
    bytes -= programs.instructions[i].released_bytes;
  }
  memory.final_bytes = bytes;
  return memory;
}

std::vector<RankMemory> AccountMemory(const ProgramSet& programs) {
  std::vector<RankMemory> result;
  result.reserve(programs.ranks());
  for (int rank = 0; rank < programs.ranks(); ++rank) result.push_back(AccountMemory(programs, rank));
  return result;
}

std::vector<HeldMicroBatch> HeldAtPeak(const ProgramSet& programs, int rank, const RankMemory& memory) {
  std::vector<HeldMicroBatch> held;
  const int32_t begin = programs.rank_begin[rank];
  const int32_t peak = begin + memory.peak_instruction;
  for (int32_t i = begin; i <= peak; ++i) {
    const Instruction& instruction = programs.instructions[i];
    if (instruction.op == Op::kForward) held.push_back({instruction.micro_batch, instruction.stage});
    // A whole backward pass gives back when it ends; a split one has recomputed all that it keeps by then.
    const bool ends = (instruction.op == Op::kBackward && i < peak) || instruction.op == Op::kBackwardInput;
    if (!ends) continue;
    const auto ended = std::find_if(held.begin(), held.end(), [&](const HeldMicroBatch& one) {
      return one.micro_batch == instruction.micro_batch && one.stage == instruction.stage;
    });
    if (ended != held.end()) held.erase(ended);
  }
  return held;
}

}  // namespace penstock::core
