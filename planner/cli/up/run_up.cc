#include "planner/cli/up/run_up.h"

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/mesh/mesh_ranks.h"
#include "common/parallel/task_pool.h"
#include "common/status/status_macros.h"
#include "planner/cli/planning_flags.h"
#include "planner/cli/profile_file.h"
#include "planner/cli/strategy_list.h"
#include "planner/cli/up/auto_tune.h"
#include "planner/cli/up/available_ranks.h"
#include "planner/cli/up/checkpoints.h"
#include "planner/cli/up/elastic_mesh.h"
#include "planner/cli/up/host_watch.h"
#include "planner/cli/up/machine.h"
#include "planner/cli/up/program_folder.h"
#include "planner/cli/up/run_console.h"
#include "planner/cli/up/run_record.h"
#include "planner/cli/up/run_setup.h"
#include "planner/cli/up/stop_signal.h"
#include "planner/cli/up/up_flags.h"
#include "planner/cli/up/up_run.h"

namespace penstock::cli {
namespace {

// By which meshes of fewer ranks are compared: a mesh that suits one batch may not suit the others.
constexpr int kBatchesToCompare = 4;

// Runs on the ranks that there are, on one way to train after the other: where --min-ranks allows it, a run
// that has lost some goes on with the others from its newest checkpoint, and takes those that come back at
// the end of an iteration. Batches are the same.
class ElasticRun {
 public:
  ElasticRun(UpOptions options, std::string bin_dir, StopSignal& stop, const RunConsole& console)
      : full_(std::move(options)),
        bin_dir_(std::move(bin_dir)),
        stop_(stop),
        console_(console),
        watch_(absl::StrSplit(full_.ssh, ' ', absl::SkipEmpty())) {}

  absl::Status Run();

 private:
  absl::StatusOr<std::unique_ptr<UpRun>> SetUp(const UpOptions& options);
  // What follows a run that has ended so; nothing: it is over.
  absl::StatusOr<std::optional<UpOptions>> Next(const UpRun& run, const absl::Status& ended);
  absl::StatusOr<UpOptions> Shrink(const UpRun& run, uint32_t lost_rank);
  absl::StatusOr<UpOptions> Grow(const UpRun& run);
  absl::StatusOr<UpOptions> OnMesh(const UpRun& run, uint32_t ranks);
  // The same of a run that tries several ways.
  absl::StatusOr<std::optional<UpOptions>> NextWay(const UpRun& run, const absl::Status& ended);
  absl::Status SearchWays(const UpRun& run);
  absl::StatusOr<UpOptions> Trial(const UpRun& run) const;
  absl::StatusOr<UpOptions> Winner(const UpRun& run) const;
  // The strategies that the run on all ranks was given while it trained (penstock strategies --set).
  void TakeStrategies(const UpRun& run);
  // Of those that go on with `run` on another mesh: where, and under what name. An error: what checkpoints
  // there are cannot be seen, or each is damaged, and nothing is begun anew.
  absl::Status GoOnFrom(const UpRun& run, UpOptions& options) const;
  static absl::StatusOr<std::optional<Checkpoint>> NewestOf(const UpRun& run) {
    return LastCheckpoint(absl::StrCat(run.options().run_dir, "/checkpoints"));
  }
  // What was shown of iterations since the one that `run` began with.
  std::vector<v1::IterationSummary> IterationsOf(const UpRun& run) const;
  bool HostsAreBack();
  AutoTuneOptions TuneOptions() const {
    return {.ways = full_.auto_tune, .iterations = full_.auto_tune_iterations};
  }
  // The costs that were measured before ways are tried.
  static std::string CostsFile(const UpRun& run) {
    return absl::StrCat(run.options().run_dir, "/costs.json");
  }

  const UpOptions full_;
  const std::string bin_dir_;
  StopSignal& stop_;
  const RunConsole& console_;
  RunHistory history_;
  HostWatch watch_;
  AvailableRanks available_{full_};
  // In place of those of full_.
  std::optional<std::vector<v1::Strategy>> strategies_;
  // Of --auto-tune, until the winner is known.
  std::optional<AutoTune> tune_;
  uint64_t segments_ = 1;
};

absl::StatusOr<std::unique_ptr<UpRun>> ElasticRun::SetUp(const UpOptions& options) {
  const RunSetupTools tools = {.bin_dir = bin_dir_,
                               .say = [this](const std::string& text) { console_.Say(text); },
                               .stopped = [this](absl::Duration timeout) { return stop_.WaitFor(timeout); }};
  PENSTOCK_ASSIGN_OR_RETURN(RunSetup setup, SetUpRun(options, tools));
  const std::function<bool()> may_grow =
      available_.lost_hosts().empty() ? std::function<bool()>() : [this] { return HostsAreBack(); };
  return std::make_unique<UpRun>(bin_dir_, std::move(setup), console_, stop_, history_, may_grow);
}

bool ElasticRun::HostsAreBack() {
  const std::set<std::string> back = watch_.Answered(absl::Now());
  for (const std::string& host : back) console_.SayNews(absl::StrCat("host ", host, " answers again"));
  available_.Return(back);
  return !back.empty();
}

// "--pp 2 --dp 3 --cp 1 --tp 1", or of several meshes "--strategies 'pp 4 + pp 3'".
std::string FlagsOf(const UpOptions& options) {
  if (!options.strategies.empty())
    return absl::StrCat("--strategies '", StrategyNames(options.strategies), "'");
  return absl::StrCat("--pp ", options.pipeline, " --dp ", options.data, " --cp ", options.context, " --tp ",
                      options.tensor, options.expert > 1 ? absl::StrCat(" --ep ", options.expert) : "");
}

absl::StatusOr<UpOptions> ElasticRun::OnMesh(const UpRun& run, uint32_t ranks) {
  v1::JobSpec job = run.job();
  // The degrees that it began with, not those that it was left with.
  *job.mutable_mesh() = MeshOf(full_);
  v1::Strategy strategy;
  *strategy.add_meshes()->mutable_mesh() = job.mesh();
  if (ranks < WorkerCount(full_)) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::optional<Checkpoint> newest, NewestOf(run));
    PENSTOCK_ASSIGN_OR_RETURN(
        const std::vector<v1::Batch> batches,
        run.Batches(newest.has_value() ? newest->manifest.next_iteration : 0, kBatchesToCompare));
    PENSTOCK_ASSIGN_OR_RETURN(
        strategy,
        FastestStrategy(job, batches,
                        {.ranks = ranks, .least = full_.min_ranks, .side_by_side = !ValidatesOnRanks(full_)},
                        [this](const std::string& text) { console_.SayNews(text); }));
  }
  UpOptions options = available_.With(strategy);
  options.on_fewer_ranks = ranks < WorkerCount(full_);
  if (strategies_.has_value()) {
    options.flags["--strategies"] = {StrategyNames(*strategies_)};
    if (!options.on_fewer_ranks) UseStrategies(*strategies_, &options);
  }
  ++segments_;
  PENSTOCK_RETURN_IF_ERROR(GoOnFrom(run, options));
  console_.SayNews(absl::StrCat(
      "going on with ", WorkerCount(options), " of ", WorkerCount(full_), " ranks (", FlagsOf(options),
      ") from ", options.resume ? "the newest checkpoint" : "the beginning: there is no checkpoint"));
  return options;
}

absl::StatusOr<UpOptions> ElasticRun::Shrink(const UpRun& run, uint32_t lost_rank) {
  const std::string lost = available_.Lose(run.options(), lost_rank);
  for (const std::string& host : available_.lost_hosts()) watch_.Watch(host, absl::Now());
  PENSTOCK_ASSIGN_OR_RETURN(const uint32_t ranks, available_.Count());
  console_.SayNews(absl::StrCat(lost, " is lost: ", ranks, " ranks are left"));
  return OnMesh(run, ranks);
}

absl::StatusOr<UpOptions> ElasticRun::Grow(const UpRun& run) {
  PENSTOCK_ASSIGN_OR_RETURN(const uint32_t ranks, available_.Count());
  return OnMesh(run, ranks);
}

void ElasticRun::TakeStrategies(const UpRun& run) {
  if (!run.options().on_fewer_ranks && run.changed_strategies().has_value())
    strategies_ = run.changed_strategies();
}

absl::Status ElasticRun::GoOnFrom(const UpRun& run, UpOptions& options) const {
  const std::string& job = run.job().job_id();
  options.run_dir = run.options().run_dir;
  options.job_id = absl::StrCat(job.substr(0, job.find("-part-")), "-part-", segments_);
  PENSTOCK_ASSIGN_OR_RETURN(const std::optional<Checkpoint> newest, NewestOf(run));
  options.resume = newest.has_value();
  // Only its user has checkpoints removed, and those that were there then are gone.
  options.fresh = false;
  options.model_of_run = options.resume && GivesWholeModel(options);
  return absl::OkStatus();
}

std::vector<v1::IterationSummary> ElasticRun::IterationsOf(const UpRun& run) const {
  std::vector<v1::IterationSummary> iterations;
  for (const v1::IterationSummary& iteration : history_.iterations)
    if (iteration.iteration() >= run.job().first_iteration()) iterations.push_back(iteration);
  return iterations;
}

absl::Status ElasticRun::SearchWays(const UpRun& run) {
  if (!run.measured().has_value())
    return absl::UnavailableError("--auto-tune: the planner could not say what its iterations took");
  console_.SayNews("auto-tune: looking for the ways that are planned to be the fastest");
  PENSTOCK_RETURN_IF_ERROR(tune_->Search(*run.measured(), DefaultThreads(), [](int, size_t, size_t) {}));
  // Trials and the winner are planned with these costs; simulated devices have those of their own profile.
  v1::ProfileFile costs;
  *costs.mutable_model() = run.measured()->job.model();
  *costs.mutable_profile() = run.measured()->job.profile();
  return WriteProfileFile(costs, CostsFile(run));
}

absl::StatusOr<UpOptions> ElasticRun::Trial(const UpRun& run) const {
  UpOptions options = OnWay(full_, tune_->current().way);
  PENSTOCK_RETURN_IF_ERROR(GoOnFrom(run, options));
  options.trial_iterations = full_.auto_tune_iterations;
  if (!IsSimulated(full_)) options.profile = CostsFile(run);
  // So that all its iterations are planned with the costs that ways are compared with.
  options.fixed_costs = true;
  return options;
}

absl::StatusOr<UpOptions> ElasticRun::Winner(const UpRun& run) const {
  UpOptions options = tune_->stays() ? full_ : OnWay(full_, tune_->winner().way);
  PENSTOCK_RETURN_IF_ERROR(GoOnFrom(run, options));
  options.auto_tune = 0;
  if (!IsSimulated(full_)) options.profile = CostsFile(run);
  options.flags =
      tune_->stays() ? FlagsWithoutSearch(full_.flags) : FlagsOnWay(full_.flags, tune_->winner().way);
  return options;
}

absl::StatusOr<std::optional<UpOptions>> ElasticRun::NextWay(const UpRun& run, const absl::Status& ended) {
  if (ended.ok() && !run.trial_is_over()) return std::nullopt;
  const bool searched = !tune_->tried().empty();
  if (!ended.ok() && (!searched || stop_.WaitFor(absl::ZeroDuration()))) return std::nullopt;
  if (!searched) PENSTOCK_RETURN_IF_ERROR(SearchWays(run));
  if (ended.ok()) {
    tune_->Take(IterationsOf(run));
  } else {
    tune_->TakeFailure(std::string(ended.message()));
  }
  console_.SayNews(absl::StrCat("auto-tune: ", DescribeTrial(tune_->current())));
  const bool goes_on = tune_->NextTrial();
  PENSTOCK_RETURN_IF_ERROR(RecordAutoTune(run.options().run_dir, tune_->ToJson()));
  ++segments_;
  if (goes_on) {
    console_.SayNews(absl::StrCat("auto-tune: trying way ", tune_->trial(), " of ", tune_->tried().size() - 1,
                                  " for ", full_.auto_tune_iterations,
                                  " iterations: ", DescribeTrial(tune_->current())));
    return Trial(run);
  }
  console_.SayNews(absl::StrCat("auto-tune: going on with ", DescribeTrial(tune_->winner())));
  PENSTOCK_ASSIGN_OR_RETURN(UpOptions winner, Winner(run));
  tune_.reset();
  return winner;
}

absl::StatusOr<std::optional<UpOptions>> ElasticRun::Next(const UpRun& run, const absl::Status& ended) {
  if (tune_.has_value()) return NextWay(run, ended);
  if (ended.ok() || full_.min_ranks == 0 || stop_.WaitFor(absl::ZeroDuration())) return std::nullopt;
  if (run.grows()) return Grow(run);
  if (run.lost_rank().has_value()) return Shrink(run, *run.lost_rank());
  return std::nullopt;
}

absl::Status ElasticRun::Run() {
  UpOptions options = full_;
  if (full_.auto_tune > 0) {
    tune_.emplace(TuneOptions());
    options.trial_iterations = AutoTune::FirstIterations(TuneOptions(), full_.fixed_costs);
  }
  for (;;) {
    PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<UpRun> run, SetUp(options));
    if (tune_.has_value() && tune_->tried().empty()) {
      PENSTOCK_RETURN_IF_ERROR(AutoTune::CheckLength(
          TuneOptions(), full_.fixed_costs, run->job().first_iteration(), run->options().iterations));
    }
    const absl::Status ended = run->RunProcesses();
    TakeStrategies(*run);
    const absl::StatusOr<std::optional<UpOptions>> next = Next(*run, ended);
    // A trial that has ended well is no end of the run.
    if (!next.ok() && ended.ok()) return run->Conclude(next.status());
    if (!next.ok()) console_.SayNews(std::string(next.status().message()));
    if (!next.ok() || !next->has_value()) return run->Conclude(ended);
    if (!ended.ok()) console_.SayNews(std::string(ended.message()));
    options = **next;
    // The run's folder is free again before the next one takes it.
    run.reset();
  }
}

absl::Status SetUpAndRun(UpOptions options) {
  StopSignal stop;
  const RunConsole console(options.json);
  std::vector<const char*> programs = {"penstock-worker"};
  if (options.planner.address.empty()) programs.push_back("penstock-planner");
  PENSTOCK_ASSIGN_OR_RETURN(std::string bin_dir, FolderOfPrograms(programs));
  return ElasticRun(std::move(options), std::move(bin_dir), stop, console).Run();
}

}  // namespace

absl::Status RunUp(UpOptions options) { return NameFlags(SetUpAndRun(std::move(options))); }

}  // namespace penstock::cli
