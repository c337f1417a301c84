#include "planner/core/timeline/wait_causes.h"

#include <algorithm>

#include "planner/core/timeline/reported_exchanges.h"

namespace penstock::core {
namespace {

using CausesByRank = std::vector<std::map<uint32_t, WaitCause>>;

// `last`: who came last, and when it began.
void Add(const TimeOfRank& waiting, const TimeOfRank& last, CausesByRank& causes) {
  const int64_t waited_ns = waiting.time.duration_ns;
  if (waited_ns == 0) return;
  const int64_t late_ns = std::clamp<int64_t>(last.time.start_ns - waiting.time.start_ns, 0, waited_ns);
  causes[waiting.rank][waiting.time.id] = {
      .rank = last.rank, .late_ns = late_ns, .transfer_ns = waited_ns - late_ns};
}

}  // namespace

std::vector<std::map<uint32_t, WaitCause>> WaitCauses(const v1::Plan& plan,
                                                      const TimesByRank& times_by_rank) {
  CausesByRank causes(plan.programs_size());
  const ReportedExchanges exchanges = ExchangesOf(plan, times_by_rank);
  for (const ReportedTransfer& transfer : exchanges.transfers) Add(transfer.awaited, transfer.sent, causes);
  for (const ReportedMeeting& meeting : exchanges.meetings) {
    if (meeting.members.size() < 2) continue;
    const auto start = [](const TimeOfRank& member) { return member.time.start_ns; };
    const auto last = std::ranges::max_element(meeting.members, {}, start);
    for (const TimeOfRank& member : meeting.members) Add(member, *last, causes);
  }
  return causes;
}

}  // namespace penstock::core
