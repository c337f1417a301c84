// What ranks waited for in an iteration, and why it was not there.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "penstock/v1/plan.pb.h"
#include "planner/core/timeline/instruction_time.h"

namespace penstock::core {

// Of a WAIT for data that comes in, or of a collective: how long until the rank that came last had begun its
// part, and how long after that.
struct WaitCause {
  // That rank.
  uint32_t rank = 0;
  int64_t late_ns = 0;
  int64_t transfer_ns = 0;
};

// By rank and id of the instruction; `times_by_rank` on one clock. What nobody waited for is missing, and
// what one end did not report.
std::vector<std::map<uint32_t, WaitCause>> WaitCauses(const v1::Plan& plan, const TimesByRank& times_by_rank);

}  // namespace penstock::core
