#include "planner/core/diagnose/communication.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <tuple>
#include <utility>

#include "common/median/median.h"

namespace penstock::core {
namespace {

// Communication runs beside passes when a pass covers half of at least one in so many. Clocks that disagree
// make less.
constexpr double kBeside = 0.5;
constexpr int64_t kOneIn = 50;
// Ranks wait for each other when that leaves less than this share of the differences between their times.
constexpr double kExplained = 0.5;

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

// Whether ranks may run an operation of the kind together.
bool IsJoint(OperationKind kind) {
  return kind == OperationKind::kCollective || kind == OperationKind::kLocal;
}

// Whether it is forward, the replica, the stage and the part of the model of the receiver, and which it is:
// its micro-batch, or the how many-th.
using TransferKey = std::tuple<bool, int32_t, int32_t, int32_t, int32_t>;

// `knows_parts`: transfers say which part of the model they leave or come to, counted over all ranks. Then
// that tells the other end, wherever it is: pipelines may turn back at their last rank.
TransferKey KeyOfTransfer(const Timeline& timeline, const Operation& operation, bool knows_parts) {
  const TimelinePlace& place = timeline.places[operation.rank];
  const bool sends =
      operation.kind == OperationKind::kSendForward || operation.kind == OperationKind::kSendBackward;
  const bool forward =
      operation.kind == OperationKind::kSendForward || operation.kind == OperationKind::kReceiveForward;
  const int32_t step = sends ? (forward ? 1 : -1) : 0;
  const int32_t part = operation.model_stage < 0 ? -1 : operation.model_stage + step;
  // The last stage of one part of the model sends to the first one of the next.
  const int32_t neighbour = (place.stage + timeline.stages + step) % timeline.stages;
  const int32_t stage = knows_parts && part >= 0 ? -1 : neighbour;
  return {forward, place.replica, stage, part,
          operation.micro_batch < 0 ? operation.number : operation.micro_batch};
}

}  // namespace

std::vector<MatchedTransfer> MatchTransfers(const Timeline& timeline, const TimelineStep& step) {
  // Only ours say the order, and with it the parts.
  const bool knows_parts = !step.after.empty();
  std::map<TransferKey, int32_t> receivers;
  for (size_t i = 0; i < step.operations.size(); ++i) {
    const Operation& operation = step.operations[i];
    if (operation.kind == OperationKind::kReceiveForward || operation.kind == OperationKind::kReceiveBackward)
      receivers[KeyOfTransfer(timeline, operation, knows_parts)] = static_cast<int32_t>(i);
  }
  std::vector<MatchedTransfer> matched;
  for (size_t i = 0; i < step.operations.size(); ++i) {
    const Operation& operation = step.operations[i];
    if (operation.kind != OperationKind::kSendForward && operation.kind != OperationKind::kSendBackward)
      continue;
    const auto found = receivers.find(KeyOfTransfer(timeline, operation, knows_parts));
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

std::vector<bool> RunsBesidePasses(const Timeline& timeline, const TimelineStep& step) {
  std::vector<std::vector<std::pair<int64_t, int64_t>>> passes(timeline.places.size());
  for (const Operation& operation : step.operations) {
    if (IsPassKind(operation.kind))
      passes[operation.rank].emplace_back(operation.start_ns, operation.end_ns());
  }
  for (auto& of_rank : passes) std::sort(of_rank.begin(), of_rank.end());
  std::vector<bool> beside;
  for (const Operation& operation : step.operations) {
    const bool may_be = IsTransferKind(operation.kind) || operation.kind == OperationKind::kCollective;
    const int64_t covered =
        may_be ? Covered(passes[operation.rank], operation.start_ns, operation.end_ns()) : 0;
    beside.push_back(covered > 0 &&
                     static_cast<double>(covered) > kBeside * static_cast<double>(operation.duration_ns));
  }
  return beside;
}

void Communication::FindAsynchronous(const Timeline& timeline) {
  std::vector<int64_t> beside(timeline.names.size(), 0), all(timeline.names.size(), 0);
  for (const TimelineStep& step : timeline.steps) {
    const std::vector<bool> runs_beside = RunsBesidePasses(timeline, step);
    for (size_t i = 0; i < step.operations.size(); ++i) {
      beside[step.operations[i].name] += runs_beside[i];
      ++all[step.operations[i].name];
    }
  }
  for (size_t name = 0; name < all.size(); ++name)
    asynchronous_[name] = beside[name] > 0 && beside[name] * kOneIn >= all[name];
}

void Communication::MeasureClocks(const Timeline& timeline) {
  std::vector<int64_t> apart;
  for (const TimelineStep& step : timeline.steps) {
    for (const MatchedTransfer& transfer : MatchTransfers(timeline, step)) {
      apart.push_back(
          std::abs(step.operations[transfer.sender].end_ns() - step.operations[transfer.receiver].end_ns()));
    }
  }
  clock_noise_ns_ = UpperMedian(apart);
}

// Ranks of a stage take as long as each other once the last one that they wait for has come. The scope for
// which that is true leaves the least differences.
Scope Communication::ScopeOf(const Timeline& timeline, int32_t name) const {
  const auto differences = [&](Scope scope) {
    // By stage: from the last start in the scope to the own end.
    std::map<int32_t, std::vector<int64_t>> times;
    for (const TimelineStep& step : timeline.steps) {
      std::map<std::pair<int64_t, int32_t>, std::vector<const Operation*>> groups;
      for (const Operation& operation : step.operations) {
        if (operation.name != name || !IsJoint(operation.kind)) continue;
        groups[{GroupIn(scope, timeline.places[operation.rank], operation.rank), operation.number}].push_back(
            &operation);
      }
      for (const auto& [key, members] : groups) {
        int64_t last_start = INT64_MIN;
        for (const Operation* member : members) last_start = std::max(last_start, member->start_ns);
        for (const Operation* member : members)
          times[timeline.places[member->rank].stage].push_back(member->end_ns() - last_start);
      }
    }
    double sum = 0;
    for (auto& [stage, values] : times) {
      const int64_t median = UpperMedian(values);
      for (const int64_t value : values) sum += static_cast<double>(std::abs(value - median));
    }
    return sum;
  };
  Scope best = Scope::kRank;
  double least = kExplained * differences(Scope::kRank);
  for (const Scope scope : {Scope::kAll, Scope::kStage, Scope::kReplica}) {
    const double left = differences(scope);
    if (left >= least) continue;
    least = left;
    best = scope;
  }
  return best;
}

int64_t Communication::KeyOf(const Timeline& timeline, const Operation& operation) const {
  const int64_t group = GroupIn(scopes_[operation.name], timeline.places[operation.rank], operation.rank);
  return (static_cast<int64_t>(operation.name) << 48) | (group << 24) | operation.number;
}

}  // namespace penstock::core
