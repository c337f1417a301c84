#include "planner/core/diagnose/diagnose.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "common/median/median.h"
#include "common/status/status_macros.h"
#include "planner/core/diagnose/causes.h"
#include "planner/core/diagnose/exchange_times.h"
#include "planner/core/diagnose/pass_times.h"
#include "planner/core/diagnose/step_replays.h"

namespace penstock::core {
namespace {

// Activities of a step that are called the same.
using Likeness = std::tuple<bool, int32_t, int32_t>;

struct MeanAndMedian {
  double mean = 0;
  double median = 0;
};

Likeness LikenessOf(const StepReplays& replays, size_t step, size_t i) {
  const Activity& activity = replays.ActivityOf(step, i);
  return {activity.host, activity.host ? activity.name_before : 0, replays.OperationOf(step, i).name};
}

std::map<Likeness, MeanAndMedian> UsualTimes(const StepReplays& replays, size_t step) {
  std::map<Likeness, std::vector<double>> alike;
  for (size_t i = 0; i < replays.graphs()[step].activities.size(); ++i)
    alike[LikenessOf(replays, step, i)].push_back(replays.NanosecondsOf(step, i));
  std::map<Likeness, MeanAndMedian> usual;
  for (auto& [name, values] : alike) {
    double sum = 0;
    for (const double value : values) sum += value;
    usual[name] = {.mean = sum / static_cast<double>(values.size()), .median = UpperMedian(values)};
  }
  return usual;
}

// In each step passes at what is usual for their work, or at the mean where nobody knows it, all else at the
// median.
double IdealNs(const StepReplays& replays, const PassTimes& passes) {
  std::vector<std::map<Likeness, MeanAndMedian>> usual;
  for (size_t step = 0; step < replays.steps(); ++step) usual.push_back(UsualTimes(replays, step));
  return replays.MeanWith([&](size_t step, size_t i, double) {
    const MeanAndMedian& alike = usual[step].at(LikenessOf(replays, step, i));
    if (!replays.IsPass(step, i)) return alike.median;
    return passes.known_work() ? passes.MeanNs(replays.OperationOf(step, i)) : alike.mean;
  });
}

void SortCauses(Diagnosis& diagnosis) {
  std::stable_sort(diagnosis.causes.begin(), diagnosis.causes.end(),
                   [](const Cause& one, const Cause& other) { return one.gain > other.gain; });
}

}  // namespace

absl::StatusOr<Diagnosis> Diagnose(const Timeline& timeline) {
  PENSTOCK_ASSIGN_OR_RETURN(const StepReplays replays, StepReplays::Of(timeline));
  const PassTimes passes(timeline);
  const ExchangeTimes exchanges(timeline, replays.graphs());
  Causes causes(replays);
  AddRankCauses(replays, passes, causes);
  AddWorkCauses(replays, passes, causes);
  AddExchangeCauses(replays, exchanges, causes);
  AddHostCauses(replays, causes);
  AddWrongCosts(replays, passes, exchanges, causes);
  Diagnosis diagnosis = {.measured_ns = replays.measured_ns(),
                         .ideal_ns = IdealNs(replays, passes),
                         .replay_error = replays.error(),
                         .foreseen_factor = passes.known_work() ? passes.foreseen_factor() : 0,
                         .causes = causes.Take(),
                         .ranks = RankTimes(timeline, replays.graphs()),
                         .critical_path = FindCriticalPath(timeline, replays.graphs())};
  SortCauses(diagnosis);
  return diagnosis;
}

void SetGainOfRightCosts(double gain, Diagnosis& diagnosis) {
  for (Cause& cause : diagnosis.causes) {
    if (cause.kind == CauseKind::kWrongCosts) cause.gain = gain;
  }
  SortCauses(diagnosis);
}

}  // namespace penstock::core
