// What a rank of a stage group computed in a pass, apart from its waiting for the others.
#pragma once

#include <cstdint>
#include <optional>

#include "penstock/v1/plan.pb.h"
#include "planner/core/timeline/instruction_time.h"

namespace penstock::core {

struct ComputedTime {
  int64_t ns = 0;
  // Of a rank that is as fast as its peers.
  int64_t expected_ns = 0;
};

// `slow_factor`: by what the plan's costs say that the rank is slow. Empty where nobody knows how
// long the rank waited, where it holds its stages alone, and where ranks divide experts: nobody plans how
// many rows come to each of them.
std::optional<ComputedTime> ComputedTimeOf(const v1::Plan& plan, const v1::Program& program,
                                           const v1::Instruction& instruction, const InstructionTime& time,
                                           double slow_factor);

}  // namespace penstock::core
