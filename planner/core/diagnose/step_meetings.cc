#include "planner/core/diagnose/step_meetings.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

namespace penstock::core {
namespace {

class MeetingFinder {
 public:
  MeetingFinder(const Timeline& timeline, const Communication& communication, const TimelineStep& step)
      : timeline_(timeline), communication_(communication), step_(step) {
    found_.meeting_of.assign(step.operations.size(), -1);
  }

  StepMeetings Find() {
    for (const MatchedTransfer& transfer : MatchTransfers(timeline_, step_)) AddTransfer(transfer);
    std::map<int64_t, std::vector<int32_t>> collectives;
    for (size_t i = 0; i < step_.operations.size(); ++i) {
      const auto operation = static_cast<int32_t>(i);
      if (found_.meeting_of[i] >= 0) continue;
      if (IsOfOneRank(at(operation).kind))
        Add({operation});
      else
        collectives[communication_.KeyOf(timeline_, at(operation))].push_back(operation);
    }
    for (auto& [key, members] : collectives) Add(std::move(members));
    return std::move(found_);
  }

 private:
  const Operation& at(int32_t operation) const { return step_.operations[operation]; }

  static bool IsOfOneRank(OperationKind kind) {
    return IsPassKind(kind) || IsTransferKind(kind) || kind == OperationKind::kWait ||
           kind == OperationKind::kBatchWait;
  }

  void AddTransfer(const MatchedTransfer& transfer) {
    const bool met = at(transfer.sender).end_ns() > at(transfer.receiver).start_ns;
    if (met)
      Add({transfer.sender, transfer.receiver});
    else
      Add({transfer.sender});
    found_.meetings.back().receiver = transfer.receiver;
    if (met) return;
    Add({transfer.receiver});
    found_.sent_before.push_back(transfer);
  }

  void Add(std::vector<int32_t> operations) {
    int64_t last_start = INT64_MIN, first_end = INT64_MAX;
    for (const int32_t operation : operations) {
      found_.meeting_of[operation] = static_cast<int32_t>(found_.meetings.size());
      last_start = std::max(last_start, at(operation).start_ns);
      first_end = std::min(first_end, at(operation).end_ns());
    }
    const bool only_waits = at(operations.front()).kind == OperationKind::kWait;
    found_.meetings.push_back({.operations = std::move(operations),
                               .duration_ns = only_waits ? 0 : std::max<int64_t>(0, first_end - last_start),
                               .first_end_ns = std::max(first_end, last_start)});
  }

  const Timeline& timeline_;
  const Communication& communication_;
  const TimelineStep& step_;
  StepMeetings found_;
};

}  // namespace

StepMeetings MeetingsOf(const Timeline& timeline, const Communication& communication,
                        const TimelineStep& step) {
  return MeetingFinder(timeline, communication, step).Find();
}

}  // namespace penstock::core
