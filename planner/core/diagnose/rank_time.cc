#include "planner/core/diagnose/rank_time.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

namespace penstock::core {
namespace {

constexpr double kInterval95 = 1.96;

using Interval = std::pair<int64_t, int64_t>;

// Sorted, without overlaps.
std::vector<Interval> Union(std::vector<Interval> intervals) {
  std::sort(intervals.begin(), intervals.end());
  std::vector<Interval> joined;
  for (const Interval& interval : intervals) {
    if (!joined.empty() && interval.first <= joined.back().second)
      joined.back().second = std::max(joined.back().second, interval.second);
    else
      joined.push_back(interval);
  }
  return joined;
}

// Of unions: how long they are, and how much of the first one the second does not cover.
int64_t Length(const std::vector<Interval>& intervals) {
  int64_t length = 0;
  for (const auto& [begin, end] : intervals) length += end - begin;
  return length;
}

int64_t LengthWithout(const std::vector<Interval>& intervals, const std::vector<Interval>& without) {
  int64_t covered = 0;
  auto other = without.begin();
  for (const auto& [begin, end] : intervals) {
    while (other != without.end() && other->second <= begin) ++other;
    for (auto next = other; next != without.end() && next->first < end; ++next)
      covered += std::min(end, next->second) - std::max(begin, next->first);
  }
  return Length(intervals) - covered;
}

bool Receives(OperationKind kind) {
  return kind == OperationKind::kReceiveForward || kind == OperationKind::kReceiveBackward;
}

// A rank in a step.
struct RankInStep {
  RankShares ns;
  std::vector<Interval> busy;
  std::vector<Interval> exchanges;
};

class StepShares {
 public:
  StepShares(const Timeline& timeline, const TimelineStep& step, const StepGraph& graph)
      : step_(step), graph_(graph), ranks_(timeline.places.size()) {
    for (const Operation& operation : step_.operations) AddOperation(operation);
    for (size_t i = 0; i < graph_.activities.size(); ++i) AddActivity(i);
  }

  RankShares Of(int32_t rank) const {
    const RankInStep& of_rank = ranks_[rank];
    RankShares shares = of_rank.ns;
    shares.exchange = static_cast<double>(LengthWithout(Union(of_rank.exchanges), Union(of_rank.busy)));
    const double spent = shares.computing() + shares.other + shares.in_group + shares.exchange +
                         shares.batch_wait + shares.host;
    const auto whole = std::max(1.0, static_cast<double>(graph_.measured_ns));
    shares.waiting = std::max(0.0, whole - spent);
    for (double* share : {&shares.forward, &shares.backward, &shares.weights, &shares.other, &shares.in_group,
                          &shares.exchange, &shares.batch_wait, &shares.host, &shares.waiting})
      *share /= whole;
    return shares;
  }

 private:
  void AddOperation(const Operation& operation) {
    RankInStep& rank = ranks_[operation.rank];
    const auto whole_ns = static_cast<double>(operation.duration_ns);
    const double ns =
        operation.computed_ns > 0 ? std::min(whole_ns, static_cast<double>(operation.computed_ns)) : whole_ns;
    rank.ns.in_group += whole_ns - ns;
    switch (operation.kind) {
      case OperationKind::kForward:
        rank.ns.forward += ns;
        break;
      case OperationKind::kBackward:
      case OperationKind::kBackwardInput:
        rank.ns.backward += ns;
        break;
      case OperationKind::kBackwardWeight:
        rank.ns.weights += ns;
        break;
      case OperationKind::kLocal:
        break;
      case OperationKind::kBatchWait:
        rank.ns.batch_wait += ns;
        return;
      default:
        return;
    }
    rank.busy.emplace_back(operation.start_ns, operation.end_ns());
  }

  // What ranks do together begins when the last of them has come.
  void AddActivity(size_t activity) {
    const Activity& what = graph_.activities[activity];
    const auto ns = static_cast<double>(graph_.durations_ns[activity]);
    const Operation& first = step_.operations[what.operation];
    if (what.host) {
      if (IsPassKind(first.kind) || first.kind == OperationKind::kLocal) ranks_[first.rank].ns.host += ns;
      return;
    }
    if (first.kind == OperationKind::kLocal) {
      ranks_[first.rank].ns.other += ns;
      return;
    }
    if (what.receiver >= 0) AddExchange(what.receiver, graph_.durations_ns[activity]);
    for (const int32_t member : what.members) AddExchange(member, graph_.durations_ns[activity]);
    if (what.receiver < 0 && what.members.empty() &&
        (Receives(first.kind) || first.kind == OperationKind::kCollective))
      AddExchange(what.operation, graph_.durations_ns[activity]);
  }

  void AddExchange(int32_t operation, int64_t ns) {
    const Operation& ended = step_.operations[operation];
    ranks_[ended.rank].exchanges.emplace_back(ended.end_ns() - std::min(ns, ended.duration_ns),
                                              ended.end_ns());
  }

  const TimelineStep& step_;
  const StepGraph& graph_;
  std::vector<RankInStep> ranks_;
};

void AddTo(RankShares& sum, const RankShares& shares, double weight) {
  sum.forward += weight * shares.forward;
  sum.backward += weight * shares.backward;
  sum.weights += weight * shares.weights;
  sum.other += weight * shares.other;
  sum.in_group += weight * shares.in_group;
  sum.exchange += weight * shares.exchange;
  sum.batch_wait += weight * shares.batch_wait;
  sum.host += weight * shares.host;
  sum.waiting += weight * shares.waiting;
}

}  // namespace

std::vector<MeasuredRankTime> RankTimes(const Timeline& timeline, const std::vector<StepGraph>& graphs) {
  std::vector<MeasuredRankTime> times(timeline.places.size());
  std::vector<double> squares(times.size(), 0.0);
  const auto steps = static_cast<double>(graphs.size());
  for (size_t step = 0; step < graphs.size(); ++step) {
    const StepShares of_step(timeline, timeline.steps[step], graphs[step]);
    for (size_t rank = 0; rank < times.size(); ++rank) {
      const RankShares shares = of_step.Of(static_cast<int32_t>(rank));
      AddTo(times[rank].shares, shares, 1 / steps);
      squares[rank] += shares.computing() * shares.computing() / steps;
    }
  }
  for (size_t rank = 0; rank < times.size(); ++rank) {
    times[rank].rank = static_cast<int32_t>(rank);
    const double mean = times[rank].shares.computing();
    if (steps > 1) {
      times[rank].computing_uncertainty =
          kInterval95 * std::sqrt(std::max(0.0, squares[rank] - mean * mean) / (steps - 1));
    }
  }
  return times;
}

}  // namespace penstock::core
