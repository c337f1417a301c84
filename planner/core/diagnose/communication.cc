#include "planner/core/diagnose/communication.h"

#include <algorithm>
#include <cstdlib>
#include <tuple>
#include <utility>

namespace penstock::core {
namespace {

// Above this share of its time communication runs beside passes.
constexpr double kBeside = 0.3;
// Ends of one collective differ by at most this share of its time, or by what clocks do.
constexpr double kSameEnd = 0.02;
constexpr int64_t kClockNoises = 4;
// Of all groups of a scope, so many have to end together.
constexpr double kMostGroups = 0.9;

int64_t MedianOf(std::vector<int64_t>& values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

int64_t GroupIn(Scope scope, const TimelinePlace& place, int32_t rank) {
  switch (scope) {
    case Scope::kRank:
      return rank;
    case Scope::kReplica:
      return place.replica;
    case Scope::kStage:
      return place.stage;
    case Scope::kAll:
      break;
  }
  return 0;
}

// Of intervals in the order of their starts that do not overlap: how much of [begin, end) they cover.
int64_t Covered(const std::vector<std::pair<int64_t, int64_t>>& intervals, int64_t begin, int64_t end) {
  auto interval = std::upper_bound(intervals.begin(), intervals.end(), std::pair(begin, begin));
  if (interval != intervals.begin()) --interval;
  int64_t covered = 0;
  for (; interval != intervals.end() && interval->first < end; ++interval)
    covered += std::max<int64_t>(0, std::min(end, interval->second) - std::max(begin, interval->first));
  return covered;
}

// Whether it is forward, the replica, the stage and the part of the model of the receiver, and which it is: its
// micro-batch, or the how many-th.
using TransferKey = std::tuple<bool, int32_t, int32_t, int32_t, int32_t>;

TransferKey KeyOfTransfer(const Timeline& timeline, const Operation& operation) {
  const TimelinePlace& place = timeline.places[operation.rank];
  const bool sends = operation.kind == OperationKind::kSendForward || operation.kind == OperationKind::kSendBackward;
  const bool forward = operation.kind == OperationKind::kSendForward || operation.kind == OperationKind::kReceiveForward;
  const int32_t step = sends ? (forward ? 1 : -1) : 0;
  // The last stage of one part of the model sends to the first one of the next.
  const int32_t stage = (place.stage + timeline.stages + step) % timeline.stages;
  const int32_t part = operation.model_stage < 0 ? -1 : operation.model_stage + step;
  return {forward, place.replica, stage, part, operation.micro_batch < 0 ? operation.number : operation.micro_batch};
}

// When operations that may be one began and ended.
struct Meeting {
  int64_t last_start = INT64_MIN;
  int64_t first_end = INT64_MAX;
  int64_t last_end = INT64_MIN;
  int64_t longest = 0;
  int members = 0;

  void Add(const Operation& operation) {
    last_start = std::max(last_start, operation.start_ns);
    first_end = std::min(first_end, operation.end_ns());
    last_end = std::max(last_end, operation.end_ns());
    longest = std::max(longest, operation.duration_ns);
    ++members;
  }
};

}  // namespace

std::vector<MatchedTransfer> MatchTransfers(const Timeline& timeline, const TimelineStep& step) {
  std::map<TransferKey, int32_t> receivers;
  for (size_t i = 0; i < step.operations.size(); ++i) {
    const Operation& operation = step.operations[i];
    if (operation.kind == OperationKind::kReceiveForward || operation.kind == OperationKind::kReceiveBackward)
      receivers[KeyOfTransfer(timeline, operation)] = static_cast<int32_t>(i);
  }
  std::vector<MatchedTransfer> matched;
  for (size_t i = 0; i < step.operations.size(); ++i) {
    const Operation& operation = step.operations[i];
    if (operation.kind != OperationKind::kSendForward && operation.kind != OperationKind::kSendBackward) continue;
    const auto found = receivers.find(KeyOfTransfer(timeline, operation));
    if (found != receivers.end()) matched.push_back({static_cast<int32_t>(i), found->second});
  }
  return matched;
}

Communication::Communication(const Timeline& timeline) : asynchronous_(timeline.names.size(), false) {
  FindAsynchronous(timeline);
  MeasureClocks(timeline);
  for (size_t name = 0; name < timeline.names.size(); ++name)
    scopes_.push_back(ScopeOf(timeline, static_cast<int32_t>(name)));
}

void Communication::FindAsynchronous(const Timeline& timeline) {
  std::vector<int64_t> beside(timeline.names.size(), 0), all(timeline.names.size(), 0);
  for (const TimelineStep& step : timeline.steps) {
    std::vector<std::vector<std::pair<int64_t, int64_t>>> passes(timeline.places.size());
    for (const Operation& operation : step.operations) {
      if (IsPassKind(operation.kind)) passes[operation.rank].emplace_back(operation.start_ns, operation.end_ns());
    }
    for (auto& of_rank : passes) std::sort(of_rank.begin(), of_rank.end());
    for (const Operation& operation : step.operations) {
      if (IsPassKind(operation.kind) || operation.kind == OperationKind::kLocal) continue;
      beside[operation.name] += Covered(passes[operation.rank], operation.start_ns, operation.end_ns());
      all[operation.name] += operation.duration_ns;
    }
  }
  for (size_t name = 0; name < all.size(); ++name) {
    asynchronous_[name] =
        all[name] > 0 && static_cast<double>(beside[name]) > kBeside * static_cast<double>(all[name]);
  }
}

void Communication::MeasureClocks(const Timeline& timeline) {
  std::vector<int64_t> apart;
  for (const TimelineStep& step : timeline.steps) {
    for (const MatchedTransfer& transfer : MatchTransfers(timeline, step)) {
      apart.push_back(std::abs(step.operations[transfer.sender].end_ns() - step.operations[transfer.receiver].end_ns()));
    }
  }
  clock_noise_ns_ = MedianOf(apart);
}

Scope Communication::ScopeOf(const Timeline& timeline, int32_t name) const {
  for (const Scope scope : {Scope::kAll, Scope::kStage, Scope::kReplica}) {
    int groups = 0, together = 0;
    for (const TimelineStep& step : timeline.steps) {
      std::map<std::pair<int64_t, int32_t>, Meeting> meetings;
      for (const Operation& operation : step.operations) {
        if (operation.name != name || operation.kind != OperationKind::kCollective) continue;
        meetings[{GroupIn(scope, timeline.places[operation.rank], operation.rank), operation.number}].Add(operation);
      }
      for (const auto& [key, meeting] : meetings) {
        if (meeting.members < 2) continue;
        ++groups;
        const auto apart = std::max(kClockNoises * clock_noise_ns_,
                                    static_cast<int64_t>(kSameEnd * static_cast<double>(meeting.longest)));
        together += meeting.last_end - meeting.first_end <= apart && meeting.last_start < meeting.first_end;
      }
    }
    if (groups > 0 && together >= kMostGroups * groups) return scope;
  }
  return Scope::kRank;
}

int64_t Communication::KeyOf(const Timeline& timeline, const Operation& operation) const {
  const int64_t group = GroupIn(scopes_[operation.name], timeline.places[operation.rank], operation.rank);
  return (static_cast<int64_t>(operation.name) << 48) | (group << 24) | operation.number;
}

}  // namespace penstock::core
