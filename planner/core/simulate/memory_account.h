// The exact account of memory: what the programs say, in their order.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/core/program/program_set.h"

namespace penstock::core {

// Memory of a rank in the order of its program; an instruction's bytes are taken before it and given back
// after it.
struct RankMemory {
  int64_t peak_bytes = 0;
  int32_t peak_instruction = 0;
  // Must equal the static memory.
  int64_t final_bytes = 0;
};

RankMemory AccountMemory(const ProgramSet& programs, int rank);
// Of all ranks.
std::vector<RankMemory> AccountMemory(const ProgramSet& programs);

// A micro-batch between its forward and backward pass on a stage.
struct HeldMicroBatch {
  int32_t micro_batch = 0;
  int32_t stage = 0;
};

// Those whose stored activations lie on a rank at its peak.
std::vector<HeldMicroBatch> HeldAtPeak(const ProgramSet& programs, int rank, const RankMemory& memory);

}  // namespace penstock::core
