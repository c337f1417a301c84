#include "planner/cli/advise/tournament.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/mesh/mesh_ranks.h"
#include "common/parallel/task_pool.h"
#include "common/ratio/ratio.h"
#include "common/status/status_macros.h"
#include "common/sync/sync.h"
#include "planner/cli/advise/promising.h"
#include "planner/cli/local_planning.h"
#include "planner/cli/planning_flags.h"
#include "planner/core/replay/expected_time.h"

namespace penstock::cli {
namespace {

// Of the candidates that fit, so many go into round 2.
constexpr size_t kKeepOneIn = 4;
// Stages of stage groups that are chosen were up to 13 % better than balanced ones.
constexpr double kChosenStagesGain = 1.13;

void AddPlan(const v1::Plan& plan, Trial* trial) {
  if (trial->batches == 0) {
    trial->schedule = plan.schedule();
    trial->layers_per_stage.assign(plan.layers_per_stage().begin(), plan.layers_per_stage().end());
  }
  ++trial->batches;
  trial->makespan_ns += core::ExpectedNs(plan.predicted());
  trial->lower_bound_ns += plan.lower_bound_ns();
  trial->real_tokens += plan.real_tokens();
  trial->computed_tokens += plan.computed_tokens();
  for (const v1::RankPrediction& rank : plan.predicted().ranks()) {
    trial->peak_memory_bytes = std::max(trial->peak_memory_bytes, rank.peak_memory_bytes());
    trial->memory_binds = trial->memory_binds || rank.bubble().memory_ns() > 0;
  }
  double layers = 0;
  for (const uint32_t count : plan.layers_per_stage()) layers += count;
  for (const v1::Replica& replica : plan.replicas()) {
    for (const v1::MicroBatch& micro_batch : replica.micro_batches()) {
      const auto tokens = static_cast<double>(micro_batch.computed_tokens());
      trial->layer_tokens += tokens * layers;
      for (const v1::StageRecompute& stage : micro_batch.recompute()) {
        trial->recomputed_layer_tokens += tokens * (stage.selective_layers() + stage.full_layers());
        trial->memory_binds = trial->memory_binds || stage.selective_layers() + stage.full_layers() > 0;
      }
    }
  }
}

// One round: the same batches and effort for all.
class Round {
 public:
  // How stages that the candidates leave free are found.
  enum class Stages : uint8_t { kBalanced, kChosen };

  Round(const v1::JobSpec& base, const std::vector<v1::Batch>& batches, size_t batch_count, v1::Effort effort,
        Stages stages, TaskPool* pool)
      : base_(base),
        batches_(batches),
        batch_count_(batch_count),
        effort_(effort),
        stages_(stages),
        pool_(pool) {}

  // Fills the trials, anew unless they have a planner; an error is that of the first candidate that has one.
  absl::Status Run(int round, const TournamentOptions& options, std::vector<Trial>* trials) const;

 private:
  absl::StatusOr<std::shared_ptr<const core::Planner>> MakePlanner(const Trial& trial) const;
  absl::Status TryOne(Trial* trial) const;

  const v1::JobSpec& base_;
  const std::vector<v1::Batch>& batches_;
  const size_t batch_count_;
  const v1::Effort effort_;
  const Stages stages_;
  TaskPool* const pool_;
};

absl::StatusOr<std::shared_ptr<const core::Planner>> Round::MakePlanner(const Trial& trial) const {
  using core::Planner;
  const v1::JobSpec job = MakeJob(base_, trial.candidate, effort_);
  const v1::Topology* stages = trial.stages.has_value() ? &*trial.stages : nullptr;
  // Stages that are chosen take far longer: not where balanced ones do not fit.
  auto planner = Planner::Create(job, Planner::Explain::kCauseAlone, core::RunSerially, {}, stages);
  if (planner.ok() && stages_ == Stages::kChosen && stages == nullptr) {
    planner = Planner::Create(job, Planner::Explain::kChanges);
  }
  PENSTOCK_RETURN_IF_ERROR(planner.status());
  return std::shared_ptr<const Planner>(*std::move(planner));
}

absl::Status Round::TryOne(Trial* trial) const {
  const auto refuse = [&](const absl::Status& status) {
    if (!IsInfeasible(status)) return status;
    *trial = Trial{.candidate = trial->candidate, .feasible = false, .effort = effort_};
    trial->reason = std::string(NameFlags(status).message());
    return absl::OkStatus();
  };
  if (trial->planner == nullptr) {
    *trial = Trial{.candidate = trial->candidate, .effort = effort_, .stages = std::move(trial->stages)};
    auto planner = MakePlanner(*trial);
    if (!planner.ok()) return refuse(planner.status());
    trial->planner = *std::move(planner);
  }
  for (size_t i = static_cast<size_t>(trial->batches); i < batch_count_; ++i) {
    const absl::StatusOr<v1::Plan> plan = PlanAndCheck(*trial->planner, batches_[i], pool_->AsFunction());
    if (!plan.ok()) return refuse(plan.status());
    AddPlan(*plan, trial);
  }
  return absl::OkStatus();
}

absl::Status Round::Run(int round, const TournamentOptions& options, std::vector<Trial>* trials) const {
  const size_t all = trials->size();
  if (all == 0) return absl::OkStatus();
  std::vector<absl::Status> statuses(all);
  Mutex mutex;
  size_t done = 0;
  options.progress(round, done, all);
  // A candidate's plans use the threads that have no candidate of their own.
  pool_->Run(static_cast<int>(all), [&](int i) {
    statuses[i] = TryOne(&(*trials)[i]);
    MutexLock lock(&mutex);
    options.progress(round, ++done, all);
  });
  for (const absl::Status& status : statuses) PENSTOCK_RETURN_IF_ERROR(status);
  return absl::OkStatus();
}

// Moves what does not fit to `infeasible`.
void TakeInfeasible(std::vector<Trial>* trials, std::vector<Trial>* infeasible) {
  const auto first = std::stable_partition(trials->begin(), trials->end(),
                                           [](const Trial& trial) { return trial.feasible; });
  std::move(first, trials->end(), std::back_inserter(*infeasible));
  trials->erase(first, trials->end());
}

// Whether a choice made no difference: a plan with the same times on the same stages.
bool SamePlan(const Trial& a, const Trial& b) {
  return a.candidate.pipeline == b.candidate.pipeline && a.candidate.tensor == b.candidate.tensor &&
         a.candidate.context == b.candidate.context && a.candidate.policy == b.candidate.policy &&
         a.makespan_ns == b.makespan_ns && a.schedule == b.schedule &&
         a.layers_per_stage == b.layers_per_stage;
}

// The same without sharding.
Candidate Unsharded(Candidate candidate) {
  candidate.shard_optimizer_state = false;
  return candidate;
}

// The first round. Sharding only gives memory: where the whole state leaves enough, it is not tried.
absl::Status RunFirst(const Round& round, const TournamentOptions& options, std::vector<Trial>* trials,
                      std::vector<Trial>* dropped) {
  const auto first_sharded = std::stable_partition(trials->begin(), trials->end(), [](const Trial& trial) {
    return !trial.candidate.shard_optimizer_state;
  });
  std::vector<Trial> sharded(std::make_move_iterator(first_sharded), std::make_move_iterator(trials->end()));
  trials->erase(first_sharded, trials->end());
  PENSTOCK_RETURN_IF_ERROR(round.Run(1, options, trials));
  const auto first_idle = std::stable_partition(sharded.begin(), sharded.end(), [&](const Trial& trial) {
    const Candidate twin = Unsharded(trial.candidate);
    return std::none_of(trials->begin(), trials->end(), [&](const Trial& other) {
      return other.candidate == twin && other.feasible && !other.memory_binds;
    });
  });
  std::move(first_idle, sharded.end(), std::back_inserter(*dropped));
  sharded.erase(first_idle, sharded.end());
  PENSTOCK_RETURN_IF_ERROR(round.Run(1, options, &sharded));
  std::move(sharded.begin(), sharded.end(), std::back_inserter(*trials));
  return absl::OkStatus();
}

bool LeavesStagesOfGroups(const Candidate& candidate) {
  return candidate.pipeline > 1 && GroupRanks(MeshOf(candidate)) > 1 &&
         candidate.stage_split == v1::STAGE_SPLIT_AUTO;
}

// Whether the stages of one are as good as any for the other: stages do not see how many of the ranks that
// divide the samples are context ranks (planner/core/stages/group_as_rank.h).
bool MayShareStages(const Candidate& a, const Candidate& b) {
  return a.pipeline == b.pipeline && a.tensor == b.tensor && a.policy == b.policy &&
         a.schedule == b.schedule && a.shard_optimizer_state == b.shard_optimizer_state;
}

// Tries candidates again, with chosen stages. What does not fit with them stays as it was.
absl::Status TryAgain(const Round& round, const TournamentOptions& options, std::vector<Trial> anew,
                      std::vector<Trial>* trials) {
  PENSTOCK_RETURN_IF_ERROR(round.Run(1, options, &anew));
  for (Trial& trial : anew) {
    if (!trial.feasible) continue;
    *std::find_if(trials->begin(), trials->end(),
                  [&](const Trial& other) { return other.candidate == trial.candidate; }) = std::move(trial);
  }
  return absl::OkStatus();
}

// Those whose chosen stages may make them one of the best, fastest first.
std::vector<Candidate> WorthChoosing(const std::vector<Trial>& trials) {
  std::vector<const Trial*> worth;
  int64_t best = std::numeric_limits<int64_t>::max();
  for (const Trial& trial : trials) best = std::min(best, trial.makespan_ns);
  const double limit = kChosenStagesGain * static_cast<double>(best);
  for (const Trial& trial : trials) {
    if (LeavesStagesOfGroups(trial.candidate) && static_cast<double>(trial.makespan_ns) <= limit)
      worth.push_back(&trial);
  }
  std::stable_sort(worth.begin(), worth.end(),
                   [](const Trial* a, const Trial* b) { return a->makespan_ns < b->makespan_ns; });
  std::vector<Candidate> candidates;
  for (const Trial* trial : worth) candidates.push_back(trial->candidate);
  return candidates;
}

// The end of the first round: chooses stages of stage groups, once for all that may share them.
absl::Status ChooseStages(const Round& round, const TournamentOptions& options, std::vector<Trial>* trials) {
  std::vector<Trial> first, others;
  const auto chosen_for = [&](const Candidate& candidate) {
    return std::find_if(first.begin(), first.end(),
                        [&](const Trial& trial) { return MayShareStages(trial.candidate, candidate); });
  };
  const std::vector<Candidate> worth = WorthChoosing(*trials);
  for (const Candidate& candidate : worth) {
    if (chosen_for(candidate) == first.end()) first.push_back({.candidate = candidate});
  }
  PENSTOCK_RETURN_IF_ERROR(TryAgain(round, options, first, trials));
  for (const Candidate& candidate : worth) {
    const auto shared = std::find_if(trials->begin(), trials->end(), [&](const Trial& trial) {
      return trial.candidate == chosen_for(candidate)->candidate;
    });
    if (shared->candidate == candidate) continue;
    others.push_back({.candidate = candidate, .stages = shared->planner->topology()});
  }
  return TryAgain(round, options, others, trials);
}

// Keeps the simplest of those that are the same.
void DropDoubles(std::vector<Trial>* trials, std::vector<Trial>* dropped) {
  std::vector<Trial> kept;
  for (Trial& trial : *trials) {
    const bool is_double =
        std::any_of(kept.begin(), kept.end(), [&](const Trial& other) { return SamePlan(trial, other); });
    (is_double ? *dropped : kept).push_back(std::move(trial));
  }
  *trials = std::move(kept);
}

// Fastest first; of equals, the one that comes first.
void Sort(std::vector<Trial>* trials) {
  std::stable_sort(trials->begin(), trials->end(), [](const Trial& a, const Trial& b) {
    return a.tokens_per_second() > b.tokens_per_second();
  });
}

void KeepBest(size_t count, std::vector<Trial>* trials, std::vector<Trial>* dropped) {
  Sort(trials);
  if (trials->size() <= count) return;
  const auto first = trials->begin() + static_cast<std::ptrdiff_t>(count);
  std::move(first, trials->end(), std::back_inserter(*dropped));
  trials->erase(first, trials->end());
}

void SortAsCandidates(const std::vector<Candidate>& candidates, std::vector<Trial>* trials) {
  const auto place = [&](const Trial& trial) {
    return std::find(candidates.begin(), candidates.end(), trial.candidate) - candidates.begin();
  };
  std::sort(trials->begin(), trials->end(),
            [&](const Trial& a, const Trial& b) { return place(a) < place(b); });
}

}  // namespace

double Trial::tokens_per_second() const {
  return Ratio(static_cast<double>(real_tokens) * 1e9, static_cast<double>(makespan_ns));
}

double Trial::gap() const {
  return lower_bound_ns > 0 ? static_cast<double>(makespan_ns) / static_cast<double>(lower_bound_ns) - 1 : 0;
}

double Trial::padding_efficiency() const {
  return Ratio(static_cast<double>(real_tokens), static_cast<double>(computed_tokens));
}

double Trial::recompute_share() const { return Ratio(recomputed_layer_tokens, layer_tokens); }

absl::StatusOr<TournamentResult> RunTournament(const v1::JobSpec& base,
                                               const std::vector<Candidate>& candidates,
                                               const std::vector<v1::Batch>& batches,
                                               const TournamentOptions& options) {
  TaskPool pool(options.threads);
  TournamentResult result;
  std::vector<Trial>& trials = result.finalists;
  PENSTOCK_ASSIGN_OR_RETURN(const Promising promising,
                            FindPromising(base, candidates, batches.front(), &pool));
  for (const Candidate& candidate : promising.kept) trials.push_back({.candidate = candidate});
  for (const Candidate& candidate : promising.left_out) result.dropped.push_back({.candidate = candidate});
  const auto finalists = static_cast<size_t>(options.finalists);

  const auto round = [&](size_t batch_count, v1::Effort effort, Round::Stages stages) {
    return Round(base, batches, batch_count, effort, stages, &pool);
  };
  const Round balanced = round(1, v1::EFFORT_FAST, Round::Stages::kBalanced);
  PENSTOCK_RETURN_IF_ERROR(RunFirst(balanced, options, &trials, &result.dropped));
  TakeInfeasible(&trials, &result.infeasible);
  const Round chosen = round(1, v1::EFFORT_FAST, Round::Stages::kChosen);
  PENSTOCK_RETURN_IF_ERROR(ChooseStages(chosen, options, &trials));
  TakeInfeasible(&trials, &result.infeasible);
  DropDoubles(&trials, &result.dropped);
  KeepBest(std::max(finalists, (trials.size() + kKeepOneIn - 1) / kKeepOneIn), &trials, &result.dropped);
  if (batches.size() > 1 && trials.size() > finalists) {
    const Round all = round(batches.size(), v1::EFFORT_FAST, Round::Stages::kBalanced);
    PENSTOCK_RETURN_IF_ERROR(all.Run(2, options, &trials));
    TakeInfeasible(&trials, &result.infeasible);
  }
  KeepBest(finalists, &trials, &result.dropped);
  for (Trial& trial : trials) trial = Trial{.candidate = trial.candidate};
  const Round last = round(batches.size(), v1::EFFORT_NORMAL, Round::Stages::kChosen);
  PENSTOCK_RETURN_IF_ERROR(last.Run(3, options, &trials));
  TakeInfeasible(&trials, &result.infeasible);
  Sort(&trials);
  SortAsCandidates(candidates, &result.dropped);
  SortAsCandidates(candidates, &result.infeasible);
  return result;
}

}  // namespace penstock::cli
