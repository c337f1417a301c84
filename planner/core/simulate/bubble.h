// Where the time of each rank goes: work, and waiting by cause.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/core/program/program_set.h"
#include "planner/core/simulate/simulator.h"

namespace penstock::core {

// Busy time and the five causes add up to the makespan. Nanoseconds.
struct RankTime {
  int64_t busy_ns = 0;
  // Before the rank's first FORWARD.
  int64_t fill_ns = 0;
  // After its last BACKWARD, until the last one of its replica.
  int64_t drain_ns = 0;
  // For a computation of another rank.
  int64_t dependency_ns = 0;
  // For a transfer, or a collective, whose data was ready.
  int64_t transfer_ns = 0;
  // After the last BACKWARD of its replica, until the last one of all replicas.
  int64_t imbalance_ns = 0;
};

// Memory of a rank in the order of its program; an instruction's bytes are taken before it and given back
// after it.
struct RankMemory {
  int64_t peak_bytes = 0;
  int32_t peak_instruction = 0;
  // Must equal the static memory.
  int64_t final_bytes = 0;
};

// `simulator` has run `programs`. Rank = replica * pipeline + position.
std::vector<RankTime> ExplainTime(const ProgramSet& programs, const Simulator& simulator, int pipeline);
std::vector<RankMemory> AccountMemory(const ProgramSet& programs);

}  // namespace penstock::core
