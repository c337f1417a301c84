#include <algorithm>
#include <map>
#include <utility>

#include "common/median/median.h"
#include "planner/core/diagnose/causes.h"

namespace penstock::core {
namespace {

// Medians over all steps of hosts' times, by the operations around them.
class UsualHosts {
 public:
  explicit UsualHosts(const StepReplays& replays) : replays_(replays) {
    std::map<std::pair<int32_t, int32_t>, std::vector<double>> hosts;
    replays.ForActivities([&](size_t step, size_t i) {
      if (replays.ActivityOf(step, i).host) hosts[KeyOf(step, i)].push_back(replays.NanosecondsOf(step, i));
    });
    for (auto& [key, values] : hosts) usual_ns_[key] = UpperMedian(values);
  }

  double NanosecondsOf(size_t step, size_t activity) const { return usual_ns_.at(KeyOf(step, activity)); }

 private:
  std::pair<int32_t, int32_t> KeyOf(size_t step, size_t activity) const {
    return {replays_.ActivityOf(step, activity).name_before, replays_.OperationOf(step, activity).name};
  }

  const StepReplays& replays_;
  std::map<std::pair<int32_t, int32_t>, double> usual_ns_;
};

void AddHostTime(const StepReplays& replays, const UsualHosts& usual, bool at_the_beginning, Causes& causes) {
  const auto is_it = [&](size_t step, size_t i) {
    const Activity& activity = replays.ActivityOf(step, i);
    return activity.host && (activity.name_before < 0) == at_the_beginning;
  };
  std::map<int32_t, double> lost;
  replays.ForActivities([&](size_t step, size_t i) {
    if (!is_it(step, i)) return;
    lost[replays.OperationOf(step, i).rank] +=
        std::max(0.0, replays.NanosecondsOf(step, i) - usual.NanosecondsOf(step, i));
  });
  for (const int32_t rank : WorstOf(lost)) {
    const Cause cause = {.kind = at_the_beginning ? CauseKind::kLateStart : CauseKind::kHostStalls,
                         .rank = rank};
    causes.Add(cause, [&](size_t step, size_t i, double duration) {
      const bool own = is_it(step, i) && replays.OperationOf(step, i).rank == rank;
      return own ? std::min(duration, usual.NanosecondsOf(step, i)) : duration;
    });
  }
}

void AddLateBatches(const StepReplays& replays, Causes& causes) {
  causes.Add({.kind = CauseKind::kLateBatches}, [&](size_t step, size_t i, double duration) {
    const bool waits =
        !replays.ActivityOf(step, i).host && replays.OperationOf(step, i).kind == OperationKind::kBatchWait;
    return waits ? 0 : duration;
  });
}

}  // namespace

void AddHostCauses(const StepReplays& replays, Causes& causes) {
  const UsualHosts usual(replays);
  AddHostTime(replays, usual, /*at_the_beginning=*/true, causes);
  AddHostTime(replays, usual, /*at_the_beginning=*/false, causes);
  AddLateBatches(replays, causes);
}

}  // namespace penstock::core
