#include "planner/cli/advise/strategy_times.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "common/status/status_macros.h"
#include "planner/cli/local_planning.h"
#include "planner/cli/strategy_list.h"

namespace penstock::cli {
namespace {

// Batches on which strategies that are slow show it: so much slower on all of them together than the best,
// and on each than the fastest.
constexpr size_t kFirstBatches = 4;
constexpr double kSlowOnAll = 1.15;
constexpr double kSlowOnEach = 1.05;
// So much slower than the fastest, as far as a glance can tell, stages are worth choosing.
constexpr double kNearTheFastest = 1.1;

// A planner that explains no more than the cause does not try stages either.
constexpr core::Planner::Explain kBalancedStages = core::Planner::Explain::kCauseAlone;
constexpr core::Planner::Explain kProbedStages = core::Planner::Explain::kChanges;

// A single mesh is planned as a job without strategies: they are the same plans.
v1::JobSpec JobOn(const v1::JobSpec& base, const v1::Strategy& strategy) {
  v1::JobSpec job = base;
  SetStrategies({strategy}, &job);
  if (strategy.meshes_size() == 1) job.clear_strategies();
  return job;
}

}  // namespace

absl::Status StrategyTimes::Look(const v1::JobSpec& base, absl::Span<const v1::Strategy> strategies) {
  v1::JobSpec even = base;
  even.mutable_planning()->set_stage_split(v1::STAGE_SPLIT_EVEN);
  all_ = std::vector<Figures>(strategies.size());
  std::vector<absl::Status> statuses(strategies.size());
  threads_->Run(static_cast<int>(strategies.size()),
                [&](int i) { statuses[i] = Bound(even, strategies[i], kBalancedStages, &all_[i]); });
  for (const absl::Status& status : statuses) PENSTOCK_RETURN_IF_ERROR(status);
  const size_t first = std::min(kFirstBatches, batches());
  GlanceAtAll(0, first);
  PENSTOCK_RETURN_IF_ERROR(ChooseStages(base, first));
  if (first < batches()) DropSlow(first);
  GlanceAtAll(first, batches());
  return absl::OkStatus();
}

void StrategyTimes::GlanceAtAll(size_t first, size_t end) {
  threads_->Run(static_cast<int>(end - first), [&](int i) { GlanceAt(first + i); });
}

absl::Status StrategyTimes::ChooseStages(const v1::JobSpec& base, size_t batches) {
  if (base.planning().stage_split() == v1::STAGE_SPLIT_EVEN) return absl::OkStatus();
  std::vector<size_t> again;
  for (size_t strategy = 0; strategy < strategies(); ++strategy) {
    const v1::Strategy& meshes = all_[strategy].strategy;
    const bool staged =
        std::ranges::any_of(meshes.meshes(), [](const auto& mesh) { return mesh.mesh().pipeline() > 1; });
    if (staged && IsNearTheFastest(strategy, batches)) again.push_back(strategy);
  }
  std::vector<Figures> chosen(again.size());
  std::vector<absl::Status> statuses(again.size());
  threads_->Run(static_cast<int>(again.size()), [&](int i) {
    statuses[i] = Bound(base, all_[again[i]].strategy, kProbedStages, &chosen[i]);
  });
  for (size_t i = 0; i < again.size(); ++i) {
    PENSTOCK_RETURN_IF_ERROR(statuses[i]);
    if (chosen[i].planner != nullptr) all_[again[i]] = std::move(chosen[i]);
  }
  GlanceAtAll(0, batches);
  return absl::OkStatus();
}

bool StrategyTimes::IsNearTheFastest(size_t strategy, size_t batches) const {
  for (size_t batch = 0; batch < batches; ++batch) {
    const double expected = Expected(strategy, batch);
    if (expected < kNever && expected <= kNearTheFastest * FastestExpected(batch)) return true;
  }
  return false;
}

double StrategyTimes::FastestExpected(size_t batch) const {
  double fastest = kNever;
  for (size_t strategy = 0; strategy < strategies(); ++strategy)
    fastest = std::min(fastest, Expected(strategy, batch));
  return fastest;
}

absl::Status StrategyTimes::Bound(const v1::JobSpec& base, const v1::Strategy& strategy,
                                  core::Planner::Explain stages, Figures* figures) const {
  figures->strategy = strategy;
  for (std::vector<double>* times :
       {&figures->bound_ns, &figures->glance_ns, &figures->closer_ns, &figures->time_ns})
    times->assign(batches(), kNever);
  figures->known.assign(batches(), 1);
  figures->samples.resize(batches());
  auto planner = core::StrategyPlanner::Create(JobOn(base, strategy), stages, threads_->AsFunction());
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
    if (figures.glance_ns[batch] == kNever) {
      const absl::StatusOr<int64_t> glance = figures.planner->planner(0).LookNs(
          batches_[batch], core::Sight::kGlance, threads_->AsFunction(), {});
      if (!glance.ok()) continue;
      figures.glance_ns[batch] = static_cast<double>(*glance);
    }
    fastest = std::min(fastest, figures.glance_ns[batch]);
  }
}

void StrategyTimes::DropSlow(size_t batches) {
  std::vector<double> sums(strategies(), 0);
  for (size_t strategy = 0; strategy < strategies(); ++strategy)
    for (size_t batch = 0; batch < batches; ++batch) sums[strategy] += Expected(strategy, batch);
  const double least = *std::ranges::min_element(sums);
  for (size_t strategy = 0; strategy < strategies(); ++strategy) {
    bool slow = sums[strategy] > kSlowOnAll * least;
    for (size_t batch = 0; batch < batches; ++batch)
      slow = slow && Expected(strategy, batch) > kSlowOnEach * FastestExpected(batch);
    if (slow) all_[strategy].known.assign(this->batches(), 1);
  }
}

absl::Status StrategyTimes::LookCloser(size_t strategy, size_t batch) {
  Figures& figures = all_[strategy];
  if (figures.known[batch] != 0) return absl::OkStatus();
  if (figures.closer_ns[batch] != kNever || figures.planner->planner(0).meshes() > 1)
    return Of(strategy, batch).status();
  const absl::StatusOr<int64_t> seen =
      figures.planner->planner(0).LookNs(batches_[batch], core::Sight::kCloser, threads_->AsFunction(), {});
  if (!seen.ok()) return Of(strategy, batch).status();
  figures.closer_ns[batch] = static_cast<double>(*seen);
  return absl::OkStatus();
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
  double seen = figures.bound_ns[batch];
  if (figures.glance_ns[batch] != kNever)
    seen = std::max(seen, figures.glance_ns[batch] * (1 - ErrorOf(core::Sight::kGlance)));
  if (figures.closer_ns[batch] != kNever)
    seen = std::max(seen, figures.closer_ns[batch] * (1 - ErrorOf(core::Sight::kCloser)));
  return seen;
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
