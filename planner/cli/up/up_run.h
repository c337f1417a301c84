// One run of `penstock up` on the ranks that it has, from what it is made of to its summary.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "penstock/client/planner_client.h"
#include "penstock/v1/planner_service.pb.h"
#include "planner/cli/advise/measured_run.h"
#include "planner/cli/trace_recorder.h"
#include "planner/cli/up/batch_source.h"
#include "planner/cli/up/checkpoints.h"
#include "planner/cli/up/expert_load_news.h"
#include "planner/cli/up/local_cluster.h"
#include "planner/cli/up/run_console.h"
#include "planner/cli/up/run_curves.h"
#include "planner/cli/up/run_history.h"
#include "planner/cli/up/run_setup.h"
#include "planner/cli/up/run_summary.h"
#include "planner/cli/up/run_validation.h"
#include "planner/cli/up/run_workers.h"
#include "planner/cli/up/slow_link_news.h"
#include "planner/cli/up/slow_rank_news.h"
#include "planner/cli/up/stop_signal.h"
#include "planner/cli/up/strategy_news.h"
#include "planner/cli/up/supervisor.h"
#include "planner/cli/up/task_counts.h"
#include "planner/cli/up/training_run.h"
#include "planner/cli/up/wait_news.h"

namespace penstock::cli {

class UpRun {
 public:
  // All references must outlive this object. `history`: of a run that goes on with other ranks, what was
  // before. `may_grow`: whether ranks have come back that this run goes
  // without; asked again and again, and may be empty.
  UpRun(std::string bin_dir, RunSetup setup, const RunConsole& console, StopSignal& stop, RunHistory& history,
        std::function<bool()> may_grow = {})
      : bin_dir_(std::move(bin_dir)),
        setup_(std::move(setup)),
        console_(console),
        stop_(stop),
        may_grow_(std::move(may_grow)),
        history_(history) {}

  // Until it is done, fails, is stopped, or ranks have come back. No process is left.
  absl::Status RunProcesses();
  // Validates the last checkpoint and prints the summary. `status`: of RunProcesses; what is returned says
  // how to go on.
  absl::Status Conclude(absl::Status status);

  // After RunProcesses: the rank that is not started again, if that ended it; and whether ranks that have
  // come back did, behind a checkpoint.
  std::optional<uint32_t> lost_rank() const {
    return supervisor_ == nullptr ? std::nullopt : supervisor_->given_up();
  }
  bool grows() const { return grows_; }
  // Whether it has ended because its trial was over (UpOptions::trial_iterations), behind a checkpoint.
  bool trial_is_over() const { return trial_is_over_; }
  // What was measured last; nothing: no iteration is done.
  const std::optional<MeasuredRun>& measured() const { return measured_; }
  // Those that its job was given while it trained, last; nothing: it has those of its options.
  const std::optional<std::vector<v1::Strategy>>& changed_strategies() const { return changed_strategies_; }

  const v1::JobSpec& job() const { return job_; }
  const UpOptions& options() const { return options_; }
  absl::StatusOr<std::vector<v1::Batch>> Batches(uint64_t first, int count) const;

 private:
  absl::Status StartProcesses();
  // What is fed, and counted.
  absl::Status MakeBatches();
  // Model, batches, mesh, first plan, memory and time, to people and to run.json.
  absl::Status SayWhatIsExpected();
  absl::Status Train();
  // Has the workers end with a checkpoint. CANCELLED, because of `why`.
  absl::Status StopWorkers(TrainingRun& run, const std::string& why);
  // Waits until the workers have said what happened, so that the cause and not its echo is shown.
  absl::Status Explain(const absl::Status& failure);
  // Until it is looked at again, unless a process ends before.
  absl::Duration PauseBehind(const TrainingRun& run) const;
  // Starts again what died.
  absl::Status Supervise(const TrainingRun& run);
  // After the last iteration, before which `run` has ended.
  absl::Status WaitForWorkers(const TrainingRun& run);
  // How waiting for the workers' end has ended.
  enum class Wait : uint8_t { kEnded, kHung, kTooLong, kSignal };
  // Until all workers have ended; those that give no sign of life for as long as the planner would take them
  // for lost are not waited for.
  Wait AwaitWorkers(absl::Duration most);
  // Whether a worker that still runs has been heard of; true where the planner cannot say.
  bool WorkersAreAlive();
  // Once: that somebody drains the job.
  void SayWhatThePlannerCannot(const TrainingRun& run);
  void SayThatItDrains(const TrainingRun& run);
  // Of a trial: takes no batches behind its last, and ends.
  void EndTrial(const TrainingRun& run);
  // Of each checkpoint that was due and has not been completed when the next one was: that it is missing.
  void SayWhatCheckpointIsMissing(const TrainingRun& run);
  // What was found since the last call. False: it failed, which was said, with `what_follows` from it.
  bool Validate(absl::string_view what_follows);
  void SayWhatWasValidated(const ValidatedCheckpoint& checkpoint);
  // Ends training that no longer gets better.
  void EndWhereItGetsNoBetter(const TrainingRun& run);
  // Until the last checkpoint was looked at.
  void ValidateTheLast();
  // A checkpoint is written after the last iteration, and is not there.
  bool MissesLastCheckpoint() const;
  absl::Status Finish();

  RunKind kind() const { return simulated() ? RunKind::kSimulated : RunKind::kTraining; }
  bool simulated() const { return IsSimulated(options_); }
  bool supervised() const { return IsSupervised(options_); }
  SayToUser Say() const {
    return [this](const std::string& text) { console_.SayNews(text); };
  }
  void ShowIteration(const v1::IterationSummary& iteration);
  // To files; training goes on without them.
  void RecordIteration(const v1::IterationSummary& iteration);
  // Says so, and has the run go on with them when it is resumed.
  void TakeStrategies(const std::optional<ActiveStrategies>& changed);
  // RUN/measured.json, for `penstock advise --from-run`.
  void RecordWhatIsMeasured();

  const std::string bin_dir_;
  const RunSetup setup_;
  const UpOptions& options_ = setup_.options;
  const v1::JobSpec& job_ = setup_.job;
  const RunConsole& console_;
  StopSignal& stop_;
  const std::function<bool()> may_grow_;
  bool grows_ = false;
  std::unique_ptr<LocalCluster> cluster_;
  std::unique_ptr<PlannerClient> client_;
  // While processes are watched: a call to a planner that is dead must not keep from noticing it.
  std::unique_ptr<PlannerClient> watching_client_;
  std::unique_ptr<Supervisor> supervisor_;
  RunHistory& history_;
  // The iteration behind the last one of the job.
  uint64_t end_ = options_.iterations;
  // Once processes are started.
  std::unique_ptr<BatchSource> batches_;
  std::optional<CountedBatches> counted_;
  std::optional<RunCurves> curves_;
  RunValidation validation_;
  // When its processes were started, and how long it took until an iteration was done.
  absl::Time begun_ = absl::InfinitePast();
  std::optional<double> start_seconds_;
  std::optional<MeasuredRun> measured_;
  StrategyNews strategies_{job_};
  std::optional<std::vector<v1::Strategy>> changed_strategies_;
  bool trial_is_over_ = false;
  bool ended_by_validation_ = false;
  bool said_that_curves_fail_ = false;
  bool said_that_it_drains_ = false;
  SlowRankNews slow_ranks_;
  SlowLinkNews slow_links_;
  ExpertLoadNews expert_loads_;
  WaitNews trouble_{WaitNews::kTrouble};
  WaitNews held_by_quota_;
  // The last checkpoint that was looked for.
  uint64_t looked_for_ = 0;
  TraceRecorder trace_;
  // Plan and reports, where they could be had.
  v1::GetIterationResponse last_iteration_;
};

}  // namespace penstock::cli
