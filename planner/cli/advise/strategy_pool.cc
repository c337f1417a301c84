#include "planner/cli/advise/strategy_pool.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "planner/cli/advise/side_by_side.h"
#include "planner/cli/advise/strategy_times.h"

namespace penstock::cli {
namespace {

// How strategies are looked at.
v1::JobSpec PlannedFast(v1::JobSpec job) {
  job.mutable_planning()->set_effort(v1::EFFORT_FAST);
  return job;
}

v1::JobSpec JobOfPool(const v1::JobSpec& base) { return PlannedFast(WithParameterShares(base)); }

absl::Status NoneHoldsAll(const StrategyTimes& times) {
  const absl::Status why = times.WhyNot();
  return absl::ResourceExhaustedError(absl::StrCat("no strategy can hold all of these batches: ",
                                                   why.ok() ? "there is none" : why.message()));
}

// The strategy on which all batches together are fastest: the one that is expected to be is planned, until
// its times are known. Nothing can hold all of them: the number of strategies.
absl::StatusOr<size_t> BestAlone(StrategyTimes* times) {
  for (;;) {
    size_t least = times->strategies();
    double least_sum = StrategyTimes::kNever;
    for (size_t strategy = 0; strategy < times->strategies(); ++strategy) {
      const double sum = times->SumExpected(strategy);
      if (sum >= least_sum) continue;
      least = strategy;
      least_sum = sum;
    }
    if (least == times->strategies()) return least;
    size_t unknown = 0;
    while (unknown < times->batches() && times->IsKnown(least, unknown)) ++unknown;
    if (unknown == times->batches()) return least;
    PENSTOCK_RETURN_IF_ERROR(times->LookCloser(least, unknown));
  }
}

// How much sooner all batches would be done with this strategy too, at most.
double GainAtMost(size_t strategy, const std::vector<double>& now, const StrategyTimes& times) {
  double gain = 0;
  for (size_t batch = 0; batch < now.size(); ++batch)
    gain += std::max(0.0, now[batch] - times.Expected(strategy, batch));
  return gain;
}

// The same by plans, of batches that it may shorten.
absl::StatusOr<double> GainOf(size_t strategy, const std::vector<double>& now, StrategyTimes* times) {
  double gain = 0;
  for (size_t batch = 0; batch < now.size(); ++batch) {
    if (times->Expected(strategy, batch) >= now[batch]) continue;
    PENSTOCK_RETURN_IF_ERROR(times->LookCloser(strategy, batch));
    if (times->Expected(strategy, batch) >= now[batch]) continue;
    PENSTOCK_ASSIGN_OR_RETURN(const double time, times->Of(strategy, batch));
    gain += std::max(0.0, now[batch] - time);
  }
  return gain;
}

// The one that gains most, and more than `least`; those that may gain most are planned first. The number of
// strategies: there is none.
absl::StatusOr<size_t> NextOf(const std::vector<double>& now, double least, StrategyTimes* times) {
  std::vector<std::pair<double, size_t>> order;
  for (size_t strategy = 0; strategy < times->strategies(); ++strategy)
    order.emplace_back(-GainAtMost(strategy, now, *times), strategy);
  std::ranges::sort(order);
  size_t best = times->strategies();
  for (const auto& [less, strategy] : order) {
    if (-less <= least) break;
    PENSTOCK_ASSIGN_OR_RETURN(const double gain, GainOf(strategy, now, times));
    if (gain <= least) continue;
    least = gain;
    best = strategy;
  }
  return best;
}

absl::StatusOr<std::vector<size_t>> Choose(const PoolLimits& limits, StrategyTimes* times) {
  PENSTOCK_ASSIGN_OR_RETURN(const size_t alone, BestAlone(times));
  std::vector<size_t> chosen;
  if (alone == times->strategies()) return chosen;
  chosen.push_back(alone);
  std::vector<double> now;
  for (size_t batch = 0; batch < times->batches(); ++batch) now.push_back(times->Expected(alone, batch));
  while (static_cast<int>(chosen.size()) < limits.strategies) {
    const double least = limits.least_gain * std::accumulate(now.begin(), now.end(), 0.0);
    PENSTOCK_ASSIGN_OR_RETURN(const size_t next, NextOf(now, least, times));
    if (next == times->strategies()) break;
    chosen.push_back(next);
    for (size_t batch = 0; batch < now.size(); ++batch)
      if (times->IsKnown(next, batch)) now[batch] = std::min(now[batch], times->Expected(next, batch));
  }
  return chosen;
}

double MeanTimeOf(const std::vector<int>& batches, const auto& time) {
  double sum = 0;
  for (const int batch : batches) sum += time(batch);
  return batches.empty() ? 0 : sum / static_cast<double>(batches.size());
}

StrategyPool PoolOf(const std::vector<size_t>& chosen, const StrategyTimes& times) {
  const size_t batches = times.batches();
  StrategyPool pool;
  pool.batches = static_cast<int>(batches);
  for (const size_t strategy : chosen) pool.strategies.emplace_back().strategy = times.strategy(strategy);
  const auto time = [&](size_t index, int batch) {
    return times.IsKnown(chosen[index], batch) ? times.Expected(chosen[index], batch) : StrategyTimes::kNever;
  };
  const double each = 1 / static_cast<double>(batches);
  for (int batch = 0; batch < static_cast<int>(batches); ++batch) {
    size_t fastest = 0;
    for (size_t i = 1; i < chosen.size(); ++i)
      if (time(i, batch) < time(fastest, batch)) fastest = i;
    pool.strategies[fastest].batches.push_back(batch);
    AddSamples(times.SamplesOf(chosen[fastest], batch), &pool.strategies[fastest].samples);
    pool.alone_ns += time(0, batch) * each;
    pool.pool_ns += time(fastest, batch) * each;
  }
  for (size_t i = 0; i < chosen.size(); ++i) {
    PooledStrategy& strategy = pool.strategies[i];
    strategy.mean_ns = MeanTimeOf(strategy.batches, [&](int batch) { return time(i, batch); });
    strategy.alone_ns = MeanTimeOf(strategy.batches, [&](int batch) { return time(0, batch); });
  }
  return pool;
}

}  // namespace

std::vector<v1::Strategy> StrategiesOf(const StrategyPool& pool) {
  std::vector<v1::Strategy> strategies;
  for (const PooledStrategy& pooled : pool.strategies) strategies.push_back(pooled.strategy);
  return strategies;
}

absl::StatusOr<std::vector<v1::Strategy>> SingleMeshes(const v1::JobSpec& base, uint32_t ranks,
                                                       uint32_t global_batch, const Given& given) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<Candidate> candidates,
                            MakeCandidates(base, ranks, global_batch, {v1::POLICY_DYNAMIC}, given));
  std::vector<v1::Strategy> strategies;
  for (const Candidate& candidate : candidates) {
    v1::Strategy strategy;
    *strategy.add_meshes()->mutable_mesh() = MeshOf(candidate);
    const bool listed =
        !strategies.empty() && strategies.back().SerializeAsString() == strategy.SerializeAsString();
    if (!listed) strategies.push_back(strategy);
  }
  return strategies;
}

absl::StatusOr<std::vector<v1::Strategy>> StrategiesToTry(const v1::JobSpec& base, uint32_t ranks,
                                                          absl::Span<const v1::Batch> batches,
                                                          const Given& given, TaskPool* threads) {
  uint32_t samples = 0;
  for (const v1::Batch& batch : batches)
    samples = std::max(samples, static_cast<uint32_t>(batch.samples_size()));
  absl::StatusOr<std::vector<v1::Strategy>> strategies = SingleMeshes(base, ranks, samples, given);
  // Of many meshes what each could do is asked, which even stages tell sooner.
  v1::JobSpec even = JobOfPool(base);
  even.mutable_planning()->set_stage_split(v1::STAGE_SPLIT_EVEN);
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<v1::Strategy> side_by_side,
                            ProposeSideBySide(even, ranks, batches, {.given = given}, threads));
  if (side_by_side.empty()) return strategies;
  if (!strategies.ok()) return side_by_side;
  strategies->insert(strategies->end(), side_by_side.begin(), side_by_side.end());
  return strategies;
}

absl::StatusOr<StrategyAlone> FastestAlone(const v1::JobSpec& base, absl::Span<const v1::Strategy> strategies,
                                           absl::Span<const v1::Batch> batches, TaskPool* threads) {
  StrategyTimes times(batches, threads);
  PENSTOCK_RETURN_IF_ERROR(times.Look(PlannedFast(base), strategies));
  PENSTOCK_ASSIGN_OR_RETURN(const size_t best, BestAlone(&times));
  if (best == times.strategies()) return NoneHoldsAll(times);
  return StrategyAlone{times.strategy(best), times.SumExpected(best) / static_cast<double>(batches.size())};
}

absl::StatusOr<StrategyPool> ProposePool(const v1::JobSpec& base, absl::Span<const v1::Strategy> strategies,
                                         absl::Span<const v1::Batch> batches, const PoolLimits& limits,
                                         TaskPool* threads) {
  StrategyTimes times(batches, threads);
  PENSTOCK_RETURN_IF_ERROR(times.Look(JobOfPool(base), strategies));
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<size_t> chosen, Choose(limits, &times));
  return chosen.empty() ? NoneHoldsAll(times) : absl::StatusOr<StrategyPool>(PoolOf(chosen, times));
}

}  // namespace penstock::cli
