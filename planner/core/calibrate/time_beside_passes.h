// What hosts take between passes: handing over what a pass made, and the instructions that no plan has a time
// for.
#pragma once

#include <cstdint>
#include <map>

#include "penstock/v1/plan.pb.h"
#include "penstock/v1/planner_service.pb.h"

namespace penstock::core {

// By the pass's Instruction.id, nanoseconds: from its end until the next pass, or the next instruction that
// other ranks have a part in, begins, without waiting for transfers (WAIT). A rank that has one core does it
// on the thread that computes, so that every pass lasts so much longer for all that come behind it. Of passes
// that the report lacks nothing is known. All ids of the report are in the program.
std::map<uint32_t, int64_t> TimeBesidePasses(const v1::Program& program,
                                             const v1::ReportIterationRequest& report);

}  // namespace penstock::core
