#include <algorithm>
#include <cmath>
#include <map>

#include "planner/core/diagnose/causes.h"
#include "planner/core/diagnose/group_passes.h"

namespace penstock::core {
namespace {

// A pass has stalled that takes so many times what others of its work take, and is so many deviations away.
constexpr double kStalled = 1.5;
constexpr double kStalledDeviations = 6;
// Others have the core of passes that are so much longer than they compute.
constexpr double kSharedCore = 1.1;

void AddSlowRanks(const StepReplays& replays, const PassTimes& passes, Causes& causes) {
  const GroupPasses groups(replays);
  for (const DiagnosedRank& slow : passes.slow_ranks()) {
    Cause cause = {.kind = CauseKind::kSlowRank, .rank = slow.rank};
    cause.factor = slow.factor;
    cause.uncertainty = slow.uncertainty;
    cause.stage = replays.timeline().places[slow.rank].stage;
    causes.Add(
        cause,
        [&](size_t step, size_t i, double duration) {
          if (!replays.IsPass(step, i)) return duration;
          const Operation& pass = replays.OperationOf(step, i);
          if (pass.computed_ns > 0) return duration - groups.SavedNs(step, i, slow.rank, slow.factor);
          return pass.rank == slow.rank ? duration / slow.factor : duration;
        },
        /*least_gain=*/-1);
  }
}

// Sums over passes, nanoseconds.
struct CoreTimes {
  double took = 0;
  // With a core.
  double computed = 0;
  // As it was foreseen; 0 where a pass is unknown.
  double expected = 0;

  void Add(const CoreTimes& other) {
    took += other.took;
    computed += other.computed;
    expected += other.expected;
  }
};

std::map<int32_t, CoreTimes> CoreTimesOfRanks(const StepReplays& replays) {
  std::map<int32_t, CoreTimes> of_ranks;
  replays.ForPasses([&](size_t step, size_t i, const Operation& pass) {
    const double took = replays.NanosecondsOf(step, i);
    of_ranks[pass.rank].Add({took, took * pass.core_share, static_cast<double>(pass.expected_ns)});
  });
  return of_ranks;
}

// What a pass would take on a core of its own, of what it computed. Cores that compute at the same time slow
// each other down (memory, shared units), which ranks that take turns on one do not feel: costs that were
// measured side by side know by how much. Costs that were measured, or fitted, while cores were shared do
// not.
double BesideOtherCores(const CoreTimes& times) {
  const bool were_measured_side_by_side =
      times.expected > times.computed && times.took > kSharedCore * times.expected;
  return were_measured_side_by_side ? times.expected / times.computed : 1;
}

// All of them at once: who shares a core shares it with another rank as often as not.
void AddSharedCores(const StepReplays& replays, Causes& causes) {
  Cause cause = {.kind = CauseKind::kSharedCores};
  CoreTimes all;
  for (const auto& [rank, times] : CoreTimesOfRanks(replays)) {
    if (times.took < kSharedCore * times.computed) continue;
    cause.ring.push_back(rank);
    all.Add(times);
  }
  if (cause.ring.empty()) return;
  const double own_core = BesideOtherCores(all);
  cause.factor = all.took / (own_core * all.computed);
  causes.Add(cause, [&](size_t step, size_t i, double duration) {
    if (!replays.IsPass(step, i)) return duration;
    const Operation& pass = replays.OperationOf(step, i);
    const bool shares = std::binary_search(cause.ring.begin(), cause.ring.end(), pass.rank);
    return shares ? duration * std::min(1.0, own_core * pass.core_share) : duration;
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
