// What ranks sent one another in an iteration, and what they did together, with the times that they reported.
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/v1/plan.pb.h"
#include "planner/core/timeline/instruction_time.h"

namespace penstock::core {

// An instruction of a rank.
struct TimeOfRank {
  uint32_t rank = 0;
  InstructionTime time;
};

// A SEND, and the WAIT for what it brings.
struct ReportedTransfer {
  TimeOfRank sent;
  TimeOfRank awaited;
};

// A collective that belongs to no micro-batch: that of each rank.
struct ReportedMeeting {
  v1::Op op = v1::OP_UNSPECIFIED;
  std::vector<TimeOfRank> members;
};

struct ReportedExchanges {
  // Of which both ends were reported.
  std::vector<ReportedTransfer> transfers;
  std::vector<ReportedMeeting> meetings;
};

// `times_by_rank` as in Trace::AddMeasured.
ReportedExchanges ExchangesOf(const v1::Plan& plan, const TimesByRank& times_by_rank);

}  // namespace penstock::core
