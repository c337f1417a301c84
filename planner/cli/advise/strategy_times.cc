#include "planner/cli/advise/strategy_times.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "common/status/status_macros.h"
#include "planner/cli/local_planning.h"
#include "planner/cli/strategy_list.h"

namespace penstock::cli {
namespace {

// By how much less than at a glance a plan may take.
constexpr double kGlanceError = 0.03;
// Batches on which strategies that are slow show it: so much slower on all of them together than the best,
// and on each than the fastest.
constexpr size_t kFirstBatches = 4;
constexpr double kSlowOnAll = 1.15;
constexpr double kSlowOnEach = 1.05;

// A single mesh is planned as a job without strategies: they are the same plans.
v1::JobSpec JobOn(const v1::JobSpec& base, const v1::Strategy& strategy) {
  v1::JobSpec job = base;
  SetStrategies({strategy}, &job);
  if (strategy.meshes_size() == 1) job.clear_strategies();
  return job;
}

}  // namespace

absl::Status StrategyTimes::Look(const v1::JobSpec& base, absl::Span<const v1::Strategy> strategies) {
  all_ = std::vector<Figures>(strategies.size());
  std::vector<absl::Status> statuses(strategies.size());
  threads_->Run(static_cast<int>(strategies.size()),
                [&](int i) { statuses[i] = Bound(base, strategies[i], &all_[i]); });
  for (const absl::Status& status : statuses) PENSTOCK_RETURN_IF_ERROR(status);
  const size_t first = std::min(kFirstBatches, batches());
  threads_->Run(static_cast<int>(first), [&](int batch) { GlanceAt(batch); });
  if (first == batches()) return absl::OkStatus();
  DropSlow(first);
  threads_->Run(static_cast<int>(batches() - first), [&](int i) { GlanceAt(first + i); });
  return absl::OkStatus();
}

absl::Status StrategyTimes::Bound(const v1::JobSpec& base, const v1::Strategy& strategy,
                                  Figures* figures) const {
  figures->strategy = strategy;
  for (std::vector<double>* times : {&figures->bound_ns, &figures->glance_ns, &figures->time_ns})
    times->assign(batches(), kNever);
  figures->known.assign(batches(), 1);
  figures->samples.resize(batches());
  auto planner = core::StrategyPlanner::Create(JobOn(base, strategy), core::Planner::Explain::kCauseAlone);
  if (!planner.ok()) return KeepCause(planner.status(), figures);
  figures->planner = *std::move(planner);
  for (size_t batch = 0; batch < batches(); ++batch) {
    const absl::StatusOr<int64_t> bound = figures->planner->planner(0).LowerBoundNs(batches_[batch]);
    PENSTOCK_RETURN_IF_ERROR(KeepCause(bound.status(), figures));
    if (!bound.ok()) continue;
    figures->bound_ns[batch] = static_cast<double>(*bound);
    figures->known[batch] = 0;
  }
  return absl::OkStatus();
}

absl::Status StrategyTimes::KeepCause(const absl::Status& status, Figures* figures) {
  if (status.ok()) return status;
  figures->why = status;
  return IsInfeasible(status) ? absl::OkStatus() : status;
}

void StrategyTimes::GlanceAt(size_t batch) {
  std::vector<size_t> order(strategies());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](size_t strategy) { return all_[strategy].bound_ns[batch]; });
  double fastest = kNever;
  for (const size_t strategy : order) {
    Figures& figures = all_[strategy];
    if (figures.bound_ns[batch] >= fastest) break;
    if (figures.known[batch] != 0) continue;
    const absl::StatusOr<int64_t> glance =
        figures.planner->planner(0).GlanceNs(batches_[batch], threads_->AsFunction(), {});
    if (!glance.ok()) continue;
    figures.glance_ns[batch] = static_cast<double>(*glance);
    fastest = std::min(fastest, figures.glance_ns[batch]);
  }
}

void StrategyTimes::DropSlow(size_t batches) {
  std::vector<double> fastest(batches, kNever), sums(strategies(), 0);
  for (size_t strategy = 0; strategy < strategies(); ++strategy) {
    for (size_t batch = 0; batch < batches; ++batch) {
      sums[strategy] += Expected(strategy, batch);
      fastest[batch] = std::min(fastest[batch], Expected(strategy, batch));
    }
  }
  const double least = *std::ranges::min_element(sums);
  for (size_t strategy = 0; strategy < strategies(); ++strategy) {
    bool slow = sums[strategy] > kSlowOnAll * least;
    for (size_t batch = 0; batch < batches; ++batch)
      slow = slow && Expected(strategy, batch) > kSlowOnEach * fastest[batch];
    if (slow) all_[strategy].known.assign(this->batches(), 1);
  }
}

absl::StatusOr<double> StrategyTimes::Of(size_t strategy, size_t batch) {
  Figures& figures = all_[strategy];
  if (figures.known[batch] != 0) return figures.time_ns[batch];
  const absl::StatusOr<v1::Plan> plan =
      PlanAndCheck(*figures.planner, batches_[batch], threads_->AsFunction());
  PENSTOCK_RETURN_IF_ERROR(KeepCause(plan.status(), &figures));
  figures.known[batch] = 1;
  if (!plan.ok()) return kNever;
  figures.time_ns[batch] = static_cast<double>(plan->predicted().makespan_ns());
  figures.samples[batch] = SamplesOfMeshes(batches_[batch], *plan);
  return figures.time_ns[batch];
}

double StrategyTimes::Expected(size_t strategy, size_t batch) const {
  const Figures& figures = all_[strategy];
  if (figures.known[batch] != 0) return figures.time_ns[batch];
  const double glance = figures.glance_ns[batch];
  return glance == kNever ? figures.bound_ns[batch]
                          : std::max(figures.bound_ns[batch], glance * (1 - kGlanceError));
}

double StrategyTimes::SumExpected(size_t strategy) const {
  double sum = 0;
  for (size_t batch = 0; batch < batches(); ++batch) sum += Expected(strategy, batch);
  return sum;
}

absl::Status StrategyTimes::WhyNot() const {
  absl::Status why = absl::OkStatus();
  for (const Figures& figures : all_)
    if (!figures.why.ok()) why = figures.why;
  return why;
}

}  // namespace penstock::cli
