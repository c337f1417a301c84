// When an instruction of a rank ran.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace penstock::core {

// Nanoseconds on a clock that all ranks of an iteration share, or on the rank's own.
struct InstructionTime {
  // Instruction.id in the rank's program.
  uint32_t id = 0;
  int64_t start_ns = 0;
  int64_t duration_ns = 0;
  // See v1::MeasuredInstruction.
  std::optional<int64_t> exchange_ns = {};
};

using TimesByRank = std::vector<std::vector<InstructionTime>>;

}  // namespace penstock::core
