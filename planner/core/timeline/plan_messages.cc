#include "planner/core/timeline/plan_messages.h"

#include "planner/core/timeline/reported_exchanges.h"

namespace penstock::core {
namespace {

// All pairs of as many ranks say more than pairs with the first do; of more it would be too many.
constexpr size_t kMostRanksInPairs = 16;

ClockMessage Between(const TimeOfRank& from, const TimeOfRank& to) {
  return {.from = from.rank,
          .to = to.rank,
          .started_ns = from.time.start_ns,
          .arrived_ns = to.time.start_ns + to.time.duration_ns};
}

void AddMeeting(const std::vector<TimeOfRank>& members, std::vector<ClockMessage>& messages) {
  const size_t centres = members.size() <= kMostRanksInPairs ? members.size() : 1;
  for (size_t i = 0; i < centres; ++i) {
    for (size_t j = i + 1; j < members.size(); ++j) {
      messages.push_back(Between(members[i], members[j]));
      messages.push_back(Between(members[j], members[i]));
    }
  }
}

}  // namespace

std::vector<ClockMessage> MessagesOf(const v1::Plan& plan, const TimesByRank& times_by_rank) {
  const ReportedExchanges exchanges = ExchangesOf(plan, times_by_rank);
  std::vector<ClockMessage> messages;
  for (const ReportedTransfer& transfer : exchanges.transfers)
    messages.push_back(Between(transfer.sent, transfer.awaited));
  for (const ReportedMeeting& meeting : exchanges.meetings) {
    if (meeting.op != v1::OP_RESHARD) AddMeeting(meeting.members, messages);
  }
  return messages;
}

}  // namespace penstock::core
