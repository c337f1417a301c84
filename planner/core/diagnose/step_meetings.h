// Which operations of a step are one: the two ends of a transfer, and a collective of several ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/core/diagnose/communication.h"
#include "planner/core/diagnose/timeline.h"

namespace penstock::core {

// Operations that are one; most have one operation alone.
struct Meeting {
  // In TimelineStep.operations, ascending; of a transfer the sender first.
  std::vector<int32_t> operations;
  // Of a transfer: the operation of the receiver, also where it met nobody; otherwise -1.
  int32_t receiver = -1;
  // From when the last had come until the first had ended; 0 of what only waits.
  int64_t duration_ns = 0;
  int64_t first_end_ns = 0;
};

struct StepMeetings {
  std::vector<Meeting> meetings;
  // By operation.
  std::vector<int32_t> meeting_of;
  // Transfers whose sender had ended before the receiver came: it has not waited for it, so that the ends
  // are two meetings.
  std::vector<MatchedTransfer> sent_before;
};

StepMeetings MeetingsOf(const Timeline& timeline, const Communication& communication,
                        const TimelineStep& step);

}  // namespace penstock::core
