#include "planner/cli/advise/strategy_pool.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "planner/cli/local_planning.h"
#include "planner/core/planner.h"

namespace penstock::cli {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// What batches take on a mesh: bounds at once, times when they are asked for.
struct MeshTimes {
  v1::Mesh mesh;
  // Null: its stages do not fit.
  std::unique_ptr<core::Planner> planner;
  // By batch. No bound: it cannot hold the batch.
  std::vector<double> bound_ns;
  std::vector<double> time_ns;
  std::vector<char> known;
  absl::Status why = absl::OkStatus();

  // A lower bound where the time is not known.
  double AtLeast(size_t batch) const { return known[batch] != 0 ? time_ns[batch] : bound_ns[batch]; }
  double SumAtLeast() const {
    double sum = 0;
    for (size_t batch = 0; batch < bound_ns.size(); ++batch) sum += AtLeast(batch);
    return sum;
  }
};

// The times of meshes, with a plan for each that is looked at.
class Times {
 public:
  Times(absl::Span<const v1::Batch> batches, TaskPool* threads) : batches_(batches), threads_(threads) {}

  absl::Status Bound(const v1::JobSpec& base, const std::vector<v1::Mesh>& meshes) {
    all_.resize(meshes.size());
    std::vector<absl::Status> statuses(meshes.size());
    threads_->Run(static_cast<int>(meshes.size()),
                  [&](int i) { statuses[i] = BoundOne(base, meshes[i], &all_[i]); });
    for (const absl::Status& status : statuses) PENSTOCK_RETURN_IF_ERROR(status);
    return absl::OkStatus();
  }

  size_t meshes() const { return all_.size(); }
  const MeshTimes& of(size_t mesh) const { return all_[mesh]; }

  absl::StatusOr<double> Of(size_t mesh, size_t batch) {
    MeshTimes& times = all_[mesh];
    if (times.known[batch] != 0) return times.time_ns[batch];
    const absl::StatusOr<v1::Plan> plan =
        PlanAndCheck(*times.planner, batches_[batch], threads_->AsFunction());
    if (!plan.ok() && !IsInfeasible(plan.status())) return plan.status();
    if (!plan.ok()) times.why = plan.status();
    times.known[batch] = 1;
    times.time_ns[batch] = plan.ok() ? static_cast<double>(plan->predicted().makespan_ns()) : kNever;
    return times.time_ns[batch];
  }

 private:
  absl::Status BoundOne(const v1::JobSpec& base, const v1::Mesh& mesh, MeshTimes* times) const {
    times->mesh = mesh;
    times->bound_ns.assign(batches_.size(), kNever);
    times->time_ns.assign(batches_.size(), kNever);
    times->known.assign(batches_.size(), 1);
    v1::JobSpec job = base;
    *job.mutable_mesh() = mesh;
    auto planner = core::Planner::Create(job, core::Planner::Explain::kCauseAlone);
    if (!planner.ok()) return KeepCause(planner.status(), times);
    times->planner = *std::move(planner);
    for (size_t batch = 0; batch < batches_.size(); ++batch) {
      const absl::StatusOr<int64_t> bound = times->planner->LowerBoundNs(batches_[batch]);
      PENSTOCK_RETURN_IF_ERROR(KeepCause(bound.status(), times));
      if (!bound.ok()) continue;
      times->bound_ns[batch] = static_cast<double>(*bound);
      times->known[batch] = 0;
    }
    return absl::OkStatus();
  }

  static absl::Status KeepCause(const absl::Status& status, MeshTimes* times) {
    if (status.ok()) return status;
    times->why = status;
    return IsInfeasible(status) ? absl::OkStatus() : status;
  }

  const absl::Span<const v1::Batch> batches_;
  TaskPool* const threads_;
  std::vector<MeshTimes> all_;
};

// The mesh on which all batches together are fastest: the one with the least sum of bounds is planned, until
// its sum is known. Nothing can hold all of them: the number of meshes.
absl::StatusOr<size_t> BestAlone(size_t batches, Times* times) {
  for (;;) {
    size_t least = times->meshes();
    for (size_t mesh = 0; mesh < times->meshes(); ++mesh) {
      const double sum = times->of(mesh).SumAtLeast();
      if (sum < kNever && (least == times->meshes() || sum < times->of(least).SumAtLeast())) least = mesh;
    }
    if (least == times->meshes()) return least;
    size_t unknown = batches;
    for (size_t batch = 0; batch < batches && unknown == batches; ++batch)
      if (times->of(least).known[batch] == 0) unknown = batch;
    if (unknown == batches) return least;
    PENSTOCK_RETURN_IF_ERROR(times->Of(least, unknown).status());
  }
}

// Fills in the time of the fastest mesh of a batch: others are planned while their bounds are below it.
absl::Status FindFastest(size_t batch, Times* times) {
  std::vector<size_t> order(times->meshes());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](size_t mesh) { return times->of(mesh).bound_ns[batch]; });
  double fastest = kNever;
  for (const size_t mesh : order) {
    if (times->of(mesh).bound_ns[batch] >= fastest) break;
    PENSTOCK_ASSIGN_OR_RETURN(const double time, times->Of(mesh, batch));
    fastest = std::min(fastest, time);
  }
  return absl::OkStatus();
}

// How much sooner all batches would be done with this mesh too. Where its bound gains nothing, nothing is
// planned.
absl::StatusOr<double> GainOf(size_t mesh, const std::vector<double>& now, Times* times) {
  double gain = 0;
  for (size_t batch = 0; batch < now.size(); ++batch) {
    if (times->of(mesh).AtLeast(batch) >= now[batch]) continue;
    PENSTOCK_ASSIGN_OR_RETURN(const double time, times->Of(mesh, batch));
    gain += std::max(0.0, now[batch] - time);
  }
  return gain;
}

absl::StatusOr<std::vector<size_t>> Choose(size_t batches, const PoolLimits& limits, Times* times) {
  PENSTOCK_ASSIGN_OR_RETURN(const size_t alone, BestAlone(batches, times));
  std::vector<size_t> chosen;
  if (alone == times->meshes()) return chosen;
  chosen.push_back(alone);
  std::vector<double> now = times->of(alone).time_ns;
  for (size_t batch = 0; batch < batches; ++batch) PENSTOCK_RETURN_IF_ERROR(FindFastest(batch, times));
  while (static_cast<int>(chosen.size()) < limits.strategies) {
    size_t best = times->meshes();
    double most = limits.least_gain * std::accumulate(now.begin(), now.end(), 0.0);
    for (size_t mesh = 0; mesh < times->meshes(); ++mesh) {
      PENSTOCK_ASSIGN_OR_RETURN(const double gain, GainOf(mesh, now, times));
      if (gain <= most) continue;
      most = gain;
      best = mesh;
    }
    if (best == times->meshes()) break;
    chosen.push_back(best);
    for (size_t batch = 0; batch < batches; ++batch)
      if (times->of(best).known[batch] != 0)
        now[batch] = std::min(now[batch], times->of(best).time_ns[batch]);
  }
  return chosen;
}

double MeanOf(const std::vector<int>& batches, const auto& time) {
  double sum = 0;
  for (const int batch : batches) sum += time(batch);
  return batches.empty() ? 0 : sum / static_cast<double>(batches.size());
}

StrategyPool PoolOf(const std::vector<size_t>& chosen, size_t batches, const Times& times) {
  StrategyPool pool;
  for (const size_t mesh : chosen) {
    PooledStrategy& strategy = pool.strategies.emplace_back();
    *strategy.strategy.add_meshes()->mutable_mesh() = times.of(mesh).mesh;
  }
  const auto time = [&](size_t index, int batch) {
    const MeshTimes& mesh = times.of(chosen[index]);
    return mesh.known[batch] != 0 ? mesh.time_ns[batch] : kNever;
  };
  const double each = 1 / static_cast<double>(batches);
  for (int batch = 0; batch < static_cast<int>(batches); ++batch) {
    size_t fastest = 0;
    for (size_t i = 1; i < chosen.size(); ++i)
      if (time(i, batch) < time(fastest, batch)) fastest = i;
    pool.strategies[fastest].batches.push_back(batch);
    pool.alone_ns += time(0, batch) * each;
    pool.pool_ns += time(fastest, batch) * each;
  }
  for (size_t i = 0; i < chosen.size(); ++i) {
    PooledStrategy& strategy = pool.strategies[i];
    strategy.mean_ns = MeanOf(strategy.batches, [&](int batch) { return time(i, batch); });
    strategy.alone_ns = MeanOf(strategy.batches, [&](int batch) { return time(0, batch); });
  }
  return pool;
}

// The way to train that all strategies share.
v1::JobSpec JobOfPool(const v1::JobSpec& base) {
  v1::JobSpec job = base;
  job.clear_strategies();
  v1::PlanningOptions& planning = *job.mutable_planning();
  planning.set_parameter_shares(true);
  planning.set_shard_optimizer_state(false);
  planning.clear_layers_per_stage();
  planning.clear_rank_of_stage();
  planning.set_stage_split(v1::STAGE_SPLIT_EVEN);
  planning.set_effort(v1::EFFORT_FAST);
  return job;
}

}  // namespace

std::vector<v1::Strategy> StrategiesOf(const StrategyPool& pool) {
  std::vector<v1::Strategy> strategies;
  for (const PooledStrategy& pooled : pool.strategies) strategies.push_back(pooled.strategy);
  return strategies;
}

absl::StatusOr<std::vector<v1::Mesh>> MeshesOf(const v1::JobSpec& base, uint32_t ranks, uint32_t global_batch,
                                               const Given& given) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<Candidate> candidates,
                            MakeCandidates(base, ranks, global_batch, {v1::POLICY_DYNAMIC}, given));
  std::vector<v1::Mesh> meshes;
  for (const Candidate& candidate : candidates) {
    const v1::Mesh mesh = MeshOf(candidate);
    const bool listed = !meshes.empty() && meshes.back().SerializeAsString() == mesh.SerializeAsString();
    if (!listed) meshes.push_back(mesh);
  }
  return meshes;
}

absl::StatusOr<StrategyPool> ProposePool(const v1::JobSpec& base, const std::vector<v1::Mesh>& meshes,
                                         absl::Span<const v1::Batch> batches, const PoolLimits& limits,
                                         TaskPool* threads) {
  Times times(batches, threads);
  PENSTOCK_RETURN_IF_ERROR(times.Bound(JobOfPool(base), meshes));
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<size_t> chosen, Choose(batches.size(), limits, &times));
  if (!chosen.empty()) return PoolOf(chosen, batches.size(), times);
  std::string why = "there is none";
  for (size_t mesh = 0; mesh < times.meshes(); ++mesh)
    if (!times.of(mesh).why.ok()) why = std::string(times.of(mesh).why.message());
  return absl::ResourceExhaustedError(absl::StrCat("no mesh can hold all of these batches: ", why));
}

}  // namespace penstock::cli
