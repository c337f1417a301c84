// The memory of a rank that only simulates: what the plan says its instructions take and give back, at the
// times at which they ran.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/agent/control_plane.h"
#include "worker/program/program.h"

namespace penstock::worker {

// The largest account of the iteration, bytes: an instruction takes its bytes when it starts and gives bytes
// back when it ends (execution.md, section 8). At most the plan's peak, which is that of the program's order.
// `measured`: times of all instructions of the program.
int64_t PeakOfAccount(const Program& program, const std::vector<MeasuredInstruction>& measured);

}  // namespace penstock::worker
