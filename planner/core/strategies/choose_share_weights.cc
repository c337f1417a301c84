#include "planner/core/strategies/choose_share_weights.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "common/mesh/mesh_ranks.h"
#include "common/status/status_macros.h"
#include "planner/core/contract/limits.h"
#include "planner/core/contract/rank_memory.h"
#include "planner/core/cost/cost_model.h"
#include "planner/core/strategies/share_sizes.h"
#include "planner/core/strategies/strategy_planner.h"

namespace penstock::core {
namespace {

// Of the time of an iteration, and of the limit of memory: what is worth shares that differ. Searches with
// more and with less memory end some tenths of a per cent apart by chance.
constexpr double kLeastSooner = 0.005;
constexpr double kLeastRelief = 0.01;
// Of the time of an iteration, what an emptier rank may cost.
constexpr double kMostLater = 0.001;
// How often shares are levelled anew by what plans with the last ones need.
constexpr int kLevellings = 3;

v1::Batch BatchOfLongest(const v1::ModelSpec& model, uint32_t length) {
  v1::Batch batch;
  v1::Sample* sample = batch.add_samples();
  sample->set_target_tokens(length);
  if (model.architecture() == v1::ARCHITECTURE_T5) sample->set_input_tokens(length);
  return batch;
}

// All meshes of a planner, each with the number of its first rank.
template <typename Visit>
void ForEachMesh(const StrategyPlanner& planner, Visit visit) {
  for (int strategy = 0; strategy < planner.strategies(); ++strategy) {
    const MeshPlanners& meshes = planner.planner(strategy);
    for (int mesh = 0; mesh < meshes.meshes(); ++mesh)
      visit(meshes.planner(mesh), meshes.planner(mesh).job().world.first_rank);
  }
}

// The longest sample that some strategy can hold alone, tokens (T5: of each side); 0: none. What holds one
// holds shorter ones.
uint32_t LongestHeld(const StrategyPlanner& planner, const v1::ModelSpec& model, StopToken stop) {
  uint32_t held = 0, above = model.max_sequence_length() + 1;
  while (above - held > 1) {
    const uint32_t length = held + (above - held) / 2;
    const bool holds =
        planner.ValidateBatch(BatchOfLongest(model, length), Planner::Explain::kCauseAlone, stop).ok();
    (holds ? held : above) = length;
  }
  return held;
}

// Weights, and what else is known of them.
struct TriedWeights {
  WeightsTrial trial;
  uint32_t longest = 0;
  // Of the rank with least room left, as if all had as much as the one with most: what is missing counts as
  // taken.
  int64_t filled_bytes = 0;
  // By rank, beside its share, bytes; likewise.
  std::vector<double> needs;
};

class WeightsChooser {
 public:
  WeightsChooser(const v1::JobSpec& job, absl::Span<const v1::Batch> batches, const RunTasks& run_tasks,
                 StopToken stop)
      : job_(job), batches_(batches), run_tasks_(run_tasks), stop_(stop), slowness_(RanksOf(job), 1) {
    if (job.planning().effort() == v1::EFFORT_THOROUGH)
      job_.mutable_planning()->set_effort(v1::EFFORT_NORMAL);
    job_.mutable_planning()->clear_share_weights();
    for (const v1::SlowRank& slow : job.profile().slow_ranks()) slowness_[slow.rank()] = slow.factor();
    limits_.assign(slowness_.size(), CommonMemoryLimit(job));
    for (const v1::RankMemoryLimit& limit : job.planning().rank_memory_limits())
      limits_[limit.rank()] = limit.bytes();
    limit_bytes_ = *std::ranges::max_element(limits_);
  }

  absl::StatusOr<ShareWeightsChoice> Run() {
    const absl::StatusOr<TriedWeights> alike = Try({});
    PENSTOCK_RETURN_IF_ERROR(stop_.status());
    // What ranks cannot do without. Other batches may have longer samples than these: whatever can be held
    // with equal shares still must be.
    std::vector<double> least;
    if (alike.ok()) {
      best_ = *alike;
      fastest_ns_ = alike->trial.iteration_ns;
      longest_ = alike->longest;
      const double equal_share = share_bytes_ / static_cast<double>(slowness_.size());
      PENSTOCK_ASSIGN_OR_RETURN(least, LeastNeeds(static_cast<int64_t>(equal_share)));
    } else {
      PENSTOCK_ASSIGN_OR_RETURN(least, LeastNeeds(0));
    }
    std::vector<double> needs = alike.ok() ? Larger(alike->needs, least) : least;
    // With less room for micro-batches, too: plans may do with it.
    PENSTOCK_RETURN_IF_ERROR(TryBySpeed(least));
    PENSTOCK_RETURN_IF_ERROR(TryBySpeed(needs));
    for (int levelling = 0; levelling < kLevellings; ++levelling) {
      PENSTOCK_ASSIGN_OR_RETURN(const std::optional<TriedWeights> level,
                                Consider(LevelShares(needs, share_bytes_)));
      if (!level.has_value()) break;
      needs = Larger(level->needs, least);
      PENSTOCK_RETURN_IF_ERROR(TryBySpeed(needs));
    }
    if (!best_.has_value()) return alike.status();
    return ShareWeightsChoice{.chosen = best_->trial, .alike = alike.ok() ? alike->trial : WeightsTrial()};
  }

 private:
  static std::vector<double> Larger(std::vector<double> a, const std::vector<double>& b) {
    for (size_t rank = 0; rank < a.size(); ++rank) a[rank] = std::max(a[rank], b[rank]);
    return a;
  }

  absl::StatusOr<std::unique_ptr<StrategyPlanner>> PlannerOf(const v1::JobSpec& job) {
    PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<StrategyPlanner> planner,
                              StrategyPlanner::Create(job, Planner::Explain::kCauseAlone, run_tasks_, stop_));
    share_bytes_ = planner->planner(0).planner(0).costs().AllShareBytes();
    return planner;
  }

  absl::StatusOr<TriedWeights> Try(std::vector<uint32_t> weights) {
    v1::JobSpec job = job_;
    job.mutable_planning()->mutable_share_weights()->Add(weights.begin(), weights.end());
    tried_.push_back(weights);
    PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<StrategyPlanner> planner, PlannerOf(job));
    TriedWeights tried;
    tried.trial.weights = std::move(weights);
    tried.needs.assign(slowness_.size(), 0);
    ForEachMesh(*planner, [&](const Planner& mesh, int first_rank) {
      for (int rank = 0; rank < mesh.costs().topology().ranks(); ++rank) {
        const int64_t stages = mesh.costs().StaticBytesOfRank(rank) - mesh.costs().ShareBytes(rank);
        double& need = tried.needs[first_rank + rank];
        need = std::max(need, static_cast<double>(stages + Missing(first_rank + rank)));
      }
    });
    double sum_ns = 0;
    for (const v1::Batch& batch : batches_) {
      PENSTOCK_ASSIGN_OR_RETURN(const v1::Plan plan, planner->MakePlan(batch, run_tasks_, stop_));
      sum_ns += static_cast<double>(EndOf(plan));
      PENSTOCK_RETURN_IF_ERROR(AddNeeds(*planner, plan, &tried));
    }
    tried.trial.iteration_ns = sum_ns / static_cast<double>(batches_.size());
    tried.longest = LongestHeld(*planner, job_.model(), stop_);
    return tried;
  }

  // With steps as long as they take on slow ranks, which plans with equal shares do not reckon with.
  int64_t EndOf(const v1::Plan& plan) const {
    int64_t end = plan.predicted().makespan_ns();
    if (!plan.options().share_weights().empty()) return end;
    for (const v1::Program& program : plan.programs()) {
      const v1::Instruction& step = program.instructions(program.instructions_size() - 1);
      const double slowed = static_cast<double>(step.expected_duration_ns()) * slowness_[program.rank()];
      end = std::max(end, step.expected_start_ns() + static_cast<int64_t>(std::llround(slowed)));
    }
    return end;
  }

  // What the rank has less than the one with most.
  int64_t Missing(int rank) const { return limit_bytes_ - limits_[rank]; }

  absl::Status AddNeeds(const StrategyPlanner& planner, const v1::Plan& plan, TriedWeights* tried) const {
    PENSTOCK_ASSIGN_OR_RETURN(const MeshPlanners* const meshes, planner.Of(plan));
    for (int mesh = 0; mesh < meshes->meshes(); ++mesh) {
      const CostModel& costs = meshes->planner(mesh).costs();
      const int first_rank = meshes->planner(mesh).job().world.first_rank;
      for (int rank = 0; rank < costs.topology().ranks(); ++rank) {
        const int64_t peak = plan.predicted().ranks(first_rank + rank).peak_memory_bytes();
        double& need = tried->needs[first_rank + rank];
        const int64_t filled = peak + Missing(first_rank + rank);
        need = std::max(need, static_cast<double>(filled - costs.ShareBytes(rank)));
        tried->filled_bytes = std::max(tried->filled_bytes, filled);
        tried->trial.peak_bytes = std::max(tried->trial.peak_bytes, peak);
      }
    }
    return absl::OkStatus();
  }

  // Beside their shares, for the samples that the ranks of a replica can hold with what is left of their
  // limits besides so much; the longest one that must be held is among them.
  absl::StatusOr<std::vector<double>> LeastNeeds(int64_t reserved_bytes) {
    std::vector<v1::Batch> batches(batches_.begin(), batches_.end());
    if (longest_ > 0) batches.push_back(BatchOfLongest(job_.model(), longest_));
    v1::JobSpec roomy = job_;
    roomy.mutable_planning()->set_memory_limit_bytes(kMostMemoryBytes);
    roomy.mutable_planning()->clear_rank_memory_limits();
    PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<StrategyPlanner> planner, PlannerOf(roomy));
    std::vector<double> needs(slowness_.size(), 0);
    absl::Status status;
    ForEachMesh(*planner, [&](const Planner& mesh, int first_rank) {
      const int ranks = mesh.costs().topology().ranks();
      std::vector<int64_t> limits;
      for (int rank = 0; rank < ranks; ++rank) limits.push_back(limits_[first_rank + rank] - reserved_bytes);
      for (const v1::Batch& batch : batches) {
        const absl::StatusOr<std::vector<int64_t>> least = mesh.LeastBytesBesideShares(batch, limits, stop_);
        if (!least.ok()) {
          status = least.status();
          return;
        }
        for (int rank = 0; rank < ranks; ++rank) {
          const auto bytes = static_cast<double>((*least)[rank] + Missing(first_rank + rank));
          needs[first_rank + rank] = std::max(needs[first_rank + rank], bytes);
        }
      }
    });
    PENSTOCK_RETURN_IF_ERROR(status);
    return needs;
  }

  absl::Status TryBySpeed(const std::vector<double>& needs) {
    if (*std::ranges::max_element(slowness_) <= 1) return absl::OkStatus();
    std::vector<double> speeds, room;
    for (size_t rank = 0; rank < needs.size(); ++rank) {
      speeds.push_back(1 / slowness_[rank]);
      room.push_back(static_cast<double>(limit_bytes_) - needs[rank]);
    }
    const std::vector<double> shares = SharesBySpeed(speeds, room, share_bytes_);
    return shares.empty() ? absl::OkStatus() : Consider(shares).status();
  }

  // Empty: tried before, or what must fit does not. CANCELLED is an error.
  absl::StatusOr<std::optional<TriedWeights>> Consider(const std::vector<double>& shares) {
    std::vector<uint32_t> weights = WeightsOfShares(shares);
    const bool alike = std::ranges::all_of(weights, [&](uint32_t weight) { return weight == weights[0]; });
    if (alike || std::ranges::find(tried_, weights) != tried_.end()) return std::nullopt;
    const absl::StatusOr<TriedWeights> tried = Try(std::move(weights));
    PENSTOCK_RETURN_IF_ERROR(stop_.status());
    if (!tried.ok() || tried->longest < longest_) return std::nullopt;
    if (!best_.has_value() || IsBetter(*tried, *best_)) best_ = *tried;
    fastest_ns_ =
        fastest_ns_ == 0 ? tried->trial.iteration_ns : std::min(fastest_ns_, tried->trial.iteration_ns);
    return *tried;
  }

  bool IsBetter(const TriedWeights& tried, const TriedWeights& than) const {
    if (tried.trial.iteration_ns < than.trial.iteration_ns * (1 - kLeastSooner)) return true;
    const auto relief = static_cast<double>(than.filled_bytes - tried.filled_bytes);
    return relief >= kLeastRelief * static_cast<double>(limit_bytes_) &&
           tried.trial.iteration_ns <= fastest_ns_ * (1 + kMostLater);
  }

  v1::JobSpec job_;
  absl::Span<const v1::Batch> batches_;
  const RunTasks& run_tasks_;
  StopToken stop_;
  // By rank: how many times as long it computes.
  std::vector<double> slowness_;
  // By rank, and the most of them.
  std::vector<int64_t> limits_;
  int64_t limit_bytes_ = 0;
  // Of all shares together.
  double share_bytes_ = 0;
  std::vector<std::vector<uint32_t>> tried_;
  std::optional<TriedWeights> best_;
  double fastest_ns_ = 0;
  // What equal shares can hold; 0: nothing.
  uint32_t longest_ = 0;
};

}  // namespace

absl::StatusOr<ShareWeightsChoice> ChooseShareWeights(const v1::JobSpec& job,
                                                      absl::Span<const v1::Batch> batches,
                                                      const RunTasks& run_tasks, StopToken stop) {
  v1::JobSpec alike = job;
  alike.mutable_planning()->clear_share_weights();
  PENSTOCK_RETURN_IF_ERROR(StrategyPlanner::CheckJob(alike));
  if (!job.planning().parameter_shares())
    return absl::InvalidArgumentError(
        "job.planning.share_weights: there are no shares without job.planning.parameter_shares; set it");
  if (batches.empty()) return absl::InvalidArgumentError("batches: none to choose weights of shares for");
  return WeightsChooser(job, batches, run_tasks, stop).Run();
}

void SetShareWeights(const ShareWeightsChoice& choice, v1::JobSpec* job) {
  job->mutable_planning()->mutable_share_weights()->Assign(choice.chosen.weights.begin(),
                                                           choice.chosen.weights.end());
}

}  // namespace penstock::core
