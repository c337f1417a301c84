#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "absl/types/span.h"
#include "planner/core/diagnose/causes.h"
#include "planner/core/diagnose/stage_balance.h"

namespace penstock::core {
namespace {

// Half of a normal distribution lies within 0.6745 deviations: spread work is told from noise by twice the
// noise.
constexpr double kWorkBeyondNoise = 2;

// Work is relative to the median, and what is spread evenly is the mean.
double MeanWork(const StepReplays& replays, const PassTimes& passes) {
  double sum = 0;
  int64_t count = 0;
  replays.ForPasses([&](size_t step, size_t, const Operation& pass) {
    sum += passes.WorkOf(step, pass);
    ++count;
  });
  return count > 0 ? sum / static_cast<double>(count) : 1;
}

void AddUnequalWork(const StepReplays& replays, const PassTimes& passes, Causes& causes) {
  if (passes.known_work() || passes.work_spread() < kWorkBeyondNoise * passes.noise()) return;
  Cause cause = {.kind = CauseKind::kUnequalWork};
  cause.factor = std::exp(passes.work_spread());
  const double mean = MeanWork(replays, passes);
  causes.Add(cause, [&](size_t step, size_t i, double duration) {
    if (!replays.IsPass(step, i)) return duration;
    return duration / passes.WorkOf(step, replays.OperationOf(step, i)) * mean;
  });
}

// Where nobody says what was foreseen, nor how many layers stages have: equal stages.
void AddStageSplit(const StepReplays& replays, const PassTimes& passes, Causes& causes) {
  if (passes.known_work()) return;
  std::map<int32_t, std::pair<double, double>> stages;
  replays.ForPasses([&](size_t, size_t, const Operation& pass) {
    auto& [own, mean] = stages[replays.timeline().places[pass.rank].stage];
    own += passes.UsualNs(pass);
    mean += passes.MeanOfStagesNs(pass.kind);
  });
  Cause cause = {.kind = CauseKind::kStageSplit};
  for (const auto& [stage, times] : stages) {
    const double factor = times.first / times.second;
    if (factor <= cause.factor) continue;
    cause.factor = factor;
    cause.stage = stage;
  }
  causes.Add(cause, [&](size_t step, size_t i, double duration) {
    if (!replays.IsPass(step, i)) return duration;
    const Operation& pass = replays.OperationOf(step, i);
    return duration * passes.MeanOfStagesNs(pass.kind) / passes.UsualNs(pass);
  });
}

// How long a pipeline takes whose stages take so long for all micro-batches of a step: the slowest stage runs
// all of them, and one of them goes through the others before and after (GPipe; Huang et al. 2019, section
// 2.3).
double PipelineTime(absl::Span<const double> times, double micro_batches) {
  const double slowest = *std::max_element(times.begin(), times.end());
  return slowest + (std::accumulate(times.begin(), times.end(), 0.0) - slowest) / micro_batches;
}

// Micro-batches of a replica in a step.
double MicroBatches(const StepReplays& replays) {
  int64_t passes = 0;
  replays.ForPasses([&](size_t, size_t, const Operation& pass) {
    passes += pass.kind == OperationKind::kForward && pass.model_stage == 0 ? 1 : 0;
  });
  const auto pipelines = static_cast<double>(replays.steps()) * replays.timeline().replicas;
  return std::max(1.0, static_cast<double>(passes) / pipelines);
}

// Where it is known: what whole layers bring that are moved. Not by replay: the order in which ranks run
// their passes is right for the stages as they are, and planning would find another for others.
void AddLayerSplit(const StepReplays& replays, const PassTimes& passes, Causes& causes) {
  const std::vector<int32_t>& layers = replays.timeline().layers_of_stage;
  if (!passes.known_work() || layers.size() < 2) return;
  std::vector<double> times(layers.size(), 0.0);
  replays.ForPasses([&](size_t, size_t, const Operation& pass) {
    if (pass.model_stage < static_cast<int32_t>(times.size()))
      times[pass.model_stage] += passes.WithUsualCoreNs(pass) / passes.FactorOf(pass.rank);
  });
  if (*std::min_element(times.begin(), times.end()) <= 0) return;
  const auto slowest = std::max_element(times.begin(), times.end());
  const double mean = std::accumulate(times.begin(), times.end(), 0.0) / static_cast<double>(times.size());
  std::vector<double> best = BestStageFactors(times, layers);
  for (size_t stage = 0; stage < best.size(); ++stage) best[stage] *= times[stage];
  const double micro_batches = MicroBatches(replays);
  const double saved = PipelineTime(times, micro_batches) - PipelineTime(best, micro_batches);
  const auto pipelines = static_cast<double>(replays.steps()) * replays.timeline().replicas;
  Cause cause = {.kind = CauseKind::kStageSplit};
  cause.stage = static_cast<int32_t>(slowest - times.begin());
  cause.factor = *slowest / mean;
  cause.gain = saved / pipelines / std::max(1.0, replays.measured_ns());
  if (cause.gain >= kLeastShownGain) causes.AddWithoutReplay(cause);
}

}  // namespace

void AddWorkCauses(const StepReplays& replays, const PassTimes& passes, Causes& causes) {
  AddUnequalWork(replays, passes, causes);
  AddStageSplit(replays, passes, causes);
  AddLayerSplit(replays, passes, causes);
}

}  // namespace penstock::core
