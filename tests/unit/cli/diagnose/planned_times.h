// What ranks would report of a plan that runs as foreseen.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "penstock/v1/plan.pb.h"
#include "planner/cli/trace.h"

namespace penstock::cli {

// As ranks see a plan that runs as foreseen: an instruction begins when its stream is free and its deps have
// ended, a transfer also when the other rank is not there yet.
inline std::vector<std::vector<InstructionTime>> TimesOfRanks(const v1::Plan& plan) {
  std::vector<std::vector<InstructionTime>> times(plan.programs_size());
  for (int rank = 0; rank < plan.programs_size(); ++rank) {
    std::map<int, int64_t> stream_ns;
    std::vector<int64_t> ends;
    for (const v1::Instruction& instruction : plan.programs(rank).instructions()) {
      int64_t start = stream_ns[instruction.stream()];
      for (const uint32_t dep : instruction.deps()) start = std::max(start, ends[dep]);
      const int64_t end = instruction.expected_start_ns() + instruction.expected_duration_ns();
      times[rank].push_back({instruction.id(), start, end - start});
      stream_ns[instruction.stream()] = end;
      ends.push_back(end);
    }
  }
  return times;
}

}  // namespace penstock::cli
