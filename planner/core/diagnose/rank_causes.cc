#include <algorithm>
#include <cmath>
#include <map>

#include "planner/core/diagnose/causes.h"

namespace penstock::core {
namespace {

// A pass has stalled that takes so many times what others of its work take, and is so many deviations away.
constexpr double kStalled = 1.5;
constexpr double kStalledDeviations = 6;
// Others have the core of passes that are so much longer than they compute.
constexpr double kSharedCore = 1.1;

void AddSlowRanks(const StepReplays& replays, const PassTimes& passes, Causes& causes) {
  for (const DiagnosedRank& slow : passes.slow_ranks()) {
    Cause cause = {.kind = CauseKind::kSlowRank, .rank = slow.rank};
    cause.factor = slow.factor;
    cause.uncertainty = slow.uncertainty;
    cause.stage = replays.timeline().places[slow.rank].stage;
    causes.Add(
        cause,
        [&](size_t step, size_t i, double duration) {
          const bool own = replays.IsPass(step, i) && replays.OperationOf(step, i).rank == slow.rank;
          return own ? duration / slow.factor : duration;
        },
        /*least_gain=*/-1);
  }
}

// All of them at once: who shares a core shares it with another rank as often as not.
void AddSharedCores(const StepReplays& replays, Causes& causes) {
  // By rank: what its passes took, and how much of it they computed.
  std::map<int32_t, std::pair<double, double>> of_ranks;
  replays.ForPasses([&](size_t step, size_t i, const Operation& pass) {
    auto& [took, computed] = of_ranks[pass.rank];
    took += replays.NanosecondsOf(step, i);
    computed += replays.NanosecondsOf(step, i) * pass.core_share;
  });
  Cause cause = {.kind = CauseKind::kSharedCores};
  double took = 0, computed = 0;
  for (const auto& [rank, times] : of_ranks) {
    if (times.first < kSharedCore * times.second) continue;
    cause.ring.push_back(rank);
    took += times.first;
    computed += times.second;
  }
  if (cause.ring.empty()) return;
  cause.factor = took / computed;
  causes.Add(cause, [&](size_t step, size_t i, double duration) {
    if (!replays.IsPass(step, i)) return duration;
    const Operation& pass = replays.OperationOf(step, i);
    const bool shares = std::binary_search(cause.ring.begin(), cause.ring.end(), pass.rank);
    return shares ? duration * pass.core_share : duration;
  });
}

void AddStalledPasses(const StepReplays& replays, const PassTimes& passes, Causes& causes) {
  // How many times as long a pass took as it would without its rank's stalls.
  const auto factor_of = [&](size_t step, const Operation& pass) {
    return passes.WithUsualCoreNs(pass) /
           (passes.UsualNs(pass) * passes.WorkOf(step, pass) * passes.FactorOf(pass.rank));
  };
  const auto has_stalled = [&](size_t step, size_t i) {
    if (!replays.IsPass(step, i)) return false;
    const double factor = factor_of(step, replays.OperationOf(step, i));
    return factor > kStalled && std::log(factor) > kStalledDeviations * passes.noise();
  };
  std::map<int32_t, double> lost, stalls;
  replays.ForPasses([&](size_t step, size_t i, const Operation& pass) {
    if (!has_stalled(step, i)) return;
    lost[pass.rank] += replays.NanosecondsOf(step, i) * (1 - 1 / factor_of(step, pass));
    stalls[pass.rank] += 1;
  });
  for (const int32_t rank : WorstOf(lost)) {
    Cause cause = {.kind = CauseKind::kStalledPasses, .rank = rank};
    cause.factor = stalls[rank] / static_cast<double>(replays.steps());
    causes.Add(cause, [&](size_t step, size_t i, double duration) {
      const bool own = has_stalled(step, i) && replays.OperationOf(step, i).rank == rank;
      return own ? duration / factor_of(step, replays.OperationOf(step, i)) : duration;
    });
  }
}

}  // namespace

void AddRankCauses(const StepReplays& replays, const PassTimes& passes, Causes& causes) {
  AddSlowRanks(replays, passes, causes);
  AddSharedCores(replays, causes);
  AddStalledPasses(replays, passes, causes);
}

}  // namespace penstock::core
