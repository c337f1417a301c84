#include "planner/cli/up/up_run.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "penstock/client/planner_client.h"
#include "planner/cli/advise/measured_run.h"
#include "planner/cli/strategy_list.h"
#include "planner/cli/trace_recorder.h"
#include "planner/cli/up/batch_source.h"
#include "planner/cli/up/checkpoints.h"
#include "planner/cli/up/local_cluster.h"
#include "planner/cli/up/log_rotation.h"
#include "planner/cli/up/run_console.h"
#include "planner/cli/up/run_curves.h"
#include "planner/cli/up/run_outlook.h"
#include "planner/cli/up/run_record.h"
#include "planner/cli/up/run_setup.h"
#include "planner/cli/up/run_summary.h"
#include "planner/cli/up/stop_signal.h"
#include "planner/cli/up/supervisor.h"
#include "planner/cli/up/task_counts.h"
#include "planner/cli/up/training_run.h"

namespace penstock::cli {
namespace {

// " x 4 context ranks x 2 tensor ranks".
std::string DescribeGroup(const UpOptions& options) {
  return absl::StrCat(options.context > 1 ? absl::StrCat(" x ", options.context, " context ranks") : "",
                      options.tensor > 1 ? absl::StrCat(" x ", options.tensor, " tensor ranks") : "");
}

// For a first look at a plan; training does not wait for long.
constexpr absl::Duration kOutlookDeadline = absl::Seconds(20);
constexpr absl::Duration kTick = absl::Milliseconds(50);
// Workers notice a lost peer within 10 s; then they have said why.
constexpr absl::Duration kFailureGrace = absl::Seconds(12);
constexpr absl::Duration kWorkersEnd = absl::Seconds(20);
// For a worker that has told the planner that it leaves, or is not heard of any more, to end, on a core of
// its own.
constexpr absl::Duration kLeaving = absl::Seconds(4);
constexpr absl::Duration kAliveDeadline = absl::Seconds(1);
// For a worker to leave a failed epoch and register for the next one, and for a planner to answer, before
// they are taken to hang.
constexpr absl::Duration kJoinTimeout = absl::Seconds(20);
// More of the first where workers write what they hold before they leave it (worker/runtime/rescue.h).
constexpr absl::Duration kRescueTime = absl::Seconds(30);
constexpr absl::Duration kPlannerTimeout = absl::Seconds(20);
// Of RUN/measured.json: what it holds, and after how many iterations it is written anew, so that a run that
// is killed has one.
constexpr uint64_t kRecordedBatches = 4;
constexpr uint64_t kRecordedEvery = 64;

}  // namespace

absl::Status UpRun::StartProcesses() {
  cluster_ =
      std::make_unique<LocalCluster>(LocalClusterOptions{.bin_dir = bin_dir_, .log_dir = setup_.folder.logs});
  std::string address = options_.planner.address;
  if (address.empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(
        address, cluster_->StartPlanner({.store = absl::StrCat("sqlite:", setup_.folder.planner_store),
                                         .metrics_listen = options_.metrics_listen,
                                         .page_listen = options_.page_listen,
                                         .otlp_endpoint = options_.otlp_endpoint,
                                         .simulated_profile = options_.true_profile}));
  }
  PENSTOCK_ASSIGN_OR_RETURN(curves_, RunCurves::Open(setup_.folder.path, job_.first_iteration(),
                                                     /*trains=*/!simulated()));
  PENSTOCK_ASSIGN_OR_RETURN(validation_, RunValidation::Open(setup_, bin_dir_));
  const PlannerFlags planner({address, options_.planner.security});
  PENSTOCK_ASSIGN_OR_RETURN(client_, planner.Client());
  PENSTOCK_ASSIGN_OR_RETURN(watching_client_, planner.Client());
  watching_client_->RepeatNoCall();
  v1::RegisterJobRequest request;
  *request.mutable_job() = job_;
  PENSTOCK_RETURN_IF_ERROR(
      AnnotateError(client_->RegisterJob(request).status(), absl::StrCat("planner ", address)));
  const uint32_t workers = WorkerCount(options_);
  console_.Say(absl::StrCat("planner ", address, ", job ", job_.job_id(), ", ", workers, " workers (",
                            options_.pipeline, " stages x ", options_.data, " replicas",
                            DescribeGroup(options_), "); logs in ", setup_.folder.logs));
  PENSTOCK_RETURN_IF_ERROR(SayWhatIsExpected());
  if (!cluster_->page().empty()) console_.Say(absl::StrCat("watch it in a browser: ", cluster_->page()));
  const LocalWorkerOptions options = WorkersOf(setup_, address);
  if (!options.hosts.empty()) console_.Say(cluster_->DescribeWorker(options, 0));
  return cluster_->StartWorkers(options);
}

absl::Status UpRun::MakeBatches() {
  const v1::Architecture architecture = job_.model().architecture();
  PENSTOCK_ASSIGN_OR_RETURN(batches_,
                            setup_.data.MakeFedBatches(options_, architecture, job_.training().iterations()));
  PENSTOCK_ASSIGN_OR_RETURN(LearntOf learnt, setup_.data.MakeLearntCounter(options_, architecture));
  counted_.emplace(*batches_, setup_.data.TaskEnds(), std::move(learnt));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<v1::Batch>> UpRun::Batches(uint64_t first, int count) const {
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<BatchSource> batches,
                            setup_.data.MakeBatches(options_, job_.model().architecture()));
  std::vector<v1::Batch> made;
  for (int i = 0; i < count; ++i) made.push_back(batches->Make(first + static_cast<uint64_t>(i)));
  return made;
}

absl::Status UpRun::SayWhatIsExpected() {
  v1::PlanBatchRequest request;
  request.set_job_id(job_.job_id());
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<v1::Batch> first, Batches(job_.first_iteration(), 1));
  *request.mutable_batch() = std::move(first.front());
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<TaskOutlook> tasks,
                            setup_.data.OutlookOfTasks(CutOf(options_, job_.model().architecture())));
  RunOutlook outlook = {.job = job_,
                        .samples = setup_.data.samples(),
                        .global_batch = static_cast<uint64_t>(request.batch().samples_size()),
                        .tasks = std::move(tasks),
                        .threads = simulated() ? 0 : ThreadsOfEachWorker(options_)};
  // What is wrong with the batch is said when it is submitted.
  const absl::StatusOr<v1::PlanBatchResponse> planned = client_->PlanBatch(request, kOutlookDeadline);
  if (planned.ok())
    outlook.plan = Summarize(PolicyName(job_.planning().policy()), request.batch(), planned->plan());
  for (const std::string& line : Describe(outlook)) console_.Say(line);
  return RecordOutlook(setup_.folder.path, ToJson(outlook));
}

void UpRun::RecordIteration(const v1::IterationSummary& iteration) {
  std::vector<TaskCounts> tasks = counted_->CountsOf(iteration.iteration());
  SetLosses(iteration, tasks);
  // One that is done again has the same batch.
  if (iteration.iteration() >= history_.furthest) AddCounts(tasks, history_.tasks);
  const absl::Status written = curves_->Add(iteration, tasks);
  if (written.ok() || said_that_curves_fail_) return;
  said_that_curves_fail_ = true;
  console_.SayNews(std::string(written.message()));
}

void UpRun::RecordWhatIsMeasured() {
  absl::StatusOr<MeasuredRun> measured = MeasuredRunOf(*watching_client_, job_.job_id(), kRecordedBatches);
  // Nothing is done yet, or the planner cannot be asked: the one before it stays.
  if (!measured.ok()) return;
  measured->start_seconds = start_seconds_;
  measured_ = *std::move(measured);
  const absl::Status written = WriteMeasuredRun(setup_.folder.path, *measured_);
  if (!written.ok()) console_.SayNews(std::string(written.message()));
}

void UpRun::TakeStrategies(const std::optional<ActiveStrategies>& changed) {
  if (!changed.has_value()) return;
  const std::string names = StrategyNames(changed->strategies);
  changed_strategies_ = changed->strategies;
  console_.SayNews(absl::StrCat("iterations from ", changed->from_iteration, " on run on: ", names));
  if (options_.on_fewer_ranks) return;
  const absl::Status recorded = RecordStrategies(setup_.folder.path, names);
  if (!recorded.ok()) console_.SayNews(std::string(recorded.message()));
}

void UpRun::ShowIteration(const v1::IterationSummary& iteration) {
  if (!start_seconds_.has_value()) start_seconds_ = absl::ToDoubleSeconds(absl::Now() - begun_);
  if (!history_.Take(iteration)) return;
  RecordIteration(iteration);
  if (iteration.iteration() < history_.furthest) return;
  history_.furthest = iteration.iteration() + 1;
  if (const auto validated = validation_.Add(iteration); validated.has_value())
    SayWhatWasValidated(*validated);
  console_.SayProgress(ProgressLine(iteration, options_.iterations - 1, kind()));
  if (history_.furthest % kRecordedEvery == 0) RecordWhatIsMeasured();
  const bool last = iteration.iteration() + 1 == options_.iterations;
  if (options_.trace.empty() && !last) return;
  v1::GetIterationRequest request;
  request.set_job_id(job_.job_id());
  request.set_iteration(iteration.iteration());
  // The planner holds recent iterations only; one that is gone is missing in the trace.
  const absl::StatusOr<v1::GetIterationResponse> measured = watching_client_->GetIteration(request);
  if (!measured.ok()) return;
  if (!options_.trace.empty()) trace_.Add(*measured);
  if (last) last_iteration_ = *measured;
}

absl::Status UpRun::Train() {
  PENSTOCK_RETURN_IF_ERROR(MakeBatches());
  TrainingRun run(*watching_client_, job_, *counted_, absl::Seconds(options_.planner_timeout_s),
                  supervised() ? TrainingRun::Epochs::kMany : TrainingRun::Epochs::kOne);
  if (options_.trial_iterations > 0) run.FeedUntil(job_.first_iteration() + options_.trial_iterations);
  LogRotation logs(setup_.folder.logs);
  while (!run.finished()) {
    logs.Look(absl::Now());
    const absl::Status step =
        run.Step([this](const v1::IterationSummary& iteration) { ShowIteration(iteration); });
    if (!step.ok()) return Explain(step);
    EndTrial(run);
    SayThatItDrains(run);
    if (const std::string news = slow_ranks_.Take(run.status()); !news.empty()) console_.SayNews(news);
    if (const std::string news = slow_links_.Take(run.status()); !news.empty()) console_.SayNews(news);
    if (const std::string news = expert_loads_.Take(run.status()); !news.empty()) console_.SayNews(news);
    TakeStrategies(strategies_.Look(*watching_client_, absl::Now()));
    SayWhatThePlannerCannot(run);
    SayWhatCheckpointIsMissing(run);
    Validate("; training goes on");
    EndWhereItGetsNoBetter(run);
    if (run.finished()) break;
    if (const absl::Status processes = Supervise(run); !processes.ok()) {
      // What was done before it is worth a line, too.
      run.Step([this](const v1::IterationSummary& iteration) { ShowIteration(iteration); }).IgnoreError();
      return Explain(processes);
    }
    if (may_grow_ && may_grow_()) {
      grows_ = true;
      return StopWorkers(run, "ranks have come back");
    }
    if (stop_.WaitFor(PauseBehind(run), cluster_->EndDescriptors()))
      return StopWorkers(run, "stopped by a signal");
  }
  RecordWhatIsMeasured();
  return WaitForWorkers(run);
}

// When it lasts: a planner that is started again has answered by then.
void UpRun::SayWhatThePlannerCannot(const TrainingRun& run) {
  if (const std::string trouble = trouble_.Take(run.trouble(), absl::Now()); !trouble.empty()) {
    console_.SayNews(absl::StrCat("waiting for the planner (",
                                  absl::FormatDuration(absl::Seconds(options_.planner_timeout_s)),
                                  " at most, --planner-timeout): ", trouble));
  }
  if (const std::string quota = held_by_quota_.Take(run.held_by_quota(), absl::Now()); !quota.empty())
    console_.SayNews(absl::StrCat("waiting for a quota: ", quota));
}

void UpRun::EndTrial(const TrainingRun& run) {
  if (options_.trial_iterations == 0 || trial_is_over_ || run.drains() || run.finished()) return;
  // A job whose workers have not begun would end with nothing done.
  const bool begun = run.status().completed_iteration() > job_.first_iteration();
  if (!begun || run.next_batch() < job_.first_iteration() + options_.trial_iterations) return;
  v1::DrainJobRequest request;
  request.set_job_id(job_.job_id());
  // Where the planner cannot be asked, the next step asks again.
  trial_is_over_ = watching_client_->DrainJob(request).ok();
}

void UpRun::SayThatItDrains(const TrainingRun& run) {
  if (!run.drains() || said_that_it_drains_ || trial_is_over_) return;
  said_that_it_drains_ = true;
  console_.SayNews(absl::StrCat("job ", job_.job_id(), " drains: it ends before iteration ",
                                run.status().next_iteration(), ", behind the batches that it has"));
}

void UpRun::SayWhatCheckpointIsMissing(const TrainingRun& run) {
  const uint64_t interval = options_.checkpoint_every;
  if (!WritesCheckpoints(options_) || interval == 0) return;
  // The ranks settle a checkpoint before they begin the next one, and rank 0 completes it in the background.
  const uint64_t intervals = run.status().completed_iteration() / interval;
  if (intervals < 3) return;
  const uint64_t wanted = (intervals - 2) * interval;
  if (wanted <= looked_for_ || wanted <= job_.first_iteration()) return;
  looked_for_ = wanted;
  const std::vector<uint64_t> complete = CompleteCheckpoints(setup_.folder.checkpoints);
  if (!complete.empty() && complete.front() >= wanted) return;
  console_.SayNews(absl::StrCat(
      "the checkpoint after iteration ", wanted - 1, " was not written (", setup_.folder.logs,
      " says why); training goes on, the next one is tried. The newest one is ",
      complete.empty() ? std::string("none") : CheckpointPath(setup_.folder.checkpoints, complete.front())));
}

void UpRun::SayWhatWasValidated(const ValidatedCheckpoint& checkpoint) {
  console_.SayNews(DescribeValidation(checkpoint));
  curves_->AddValidation(checkpoint).IgnoreError();
}

bool UpRun::Validate(absl::string_view what_follows) {
  const absl::StatusOr<std::optional<ValidatedCheckpoint>> found = validation_.Step();
  if (!found.ok()) {
    console_.SayNews(absl::StrCat("validation: ", found.status().message(), what_follows));
    return false;
  }
  if (found->has_value()) SayWhatWasValidated(**found);
  return true;
}

void UpRun::EndWhereItGetsNoBetter(const TrainingRun& run) {
  if (ended_by_validation_ || run.drains() || run.finished()) return;
  if (!validation_.IsOutOfPatience(options_.patience)) return;
  v1::DrainJobRequest request;
  request.set_job_id(job_.job_id());
  // Where the planner cannot be asked, the next step asks again.
  ended_by_validation_ = watching_client_->DrainJob(request).ok();
  if (!ended_by_validation_) return;
  const std::optional<ValidatedCheckpoint>& best = validation_.best()->best();
  console_.SayNews(absl::StrCat(
      "training ends: ", options_.patience, " validations in a row (--patience) ",
      best.has_value() ? absl::StrCat("were no better than that of iteration ", best->next_iteration - 1)
                       : "found a loss that is no number"));
}

void UpRun::ValidateTheLast() {
  while (Validate("") && validation_.pending())
    if (stop_.WaitFor(kTick)) return;
}

absl::Status UpRun::StopWorkers(TrainingRun& run, const std::string& why) {
  RecordWhatIsMeasured();
  if (WritesCheckpoints(options_)) {
    console_.SayNews(absl::StrCat("stopping after this iteration, with a checkpoint (within ",
                                  options_.stop_seconds, " s; once more: at once)"));
    cluster_->AskWorkersToStop();
    const absl::Time deadline = absl::Now() + absl::Seconds(options_.stop_seconds);
    while (!cluster_->WorkersEnded() && absl::Now() < deadline && !stop_.WaitForAnother(kTick)) {
      // They may wait for a plan. That their epoch fails because they leave is what was asked for.
      run.Step([this](const v1::IterationSummary& iteration) { ShowIteration(iteration); }).IgnoreError();
    }
  }
  return absl::CancelledError(why);
}

absl::Duration UpRun::PauseBehind(const TrainingRun& run) const {
  return supervisor_ != nullptr && supervisor_->restarts() ? kTick : run.Pause();
}

absl::Status UpRun::Supervise(const TrainingRun& run) {
  if (!supervised()) return cluster_->Check();
  if (supervisor_ == nullptr) {
    supervisor_ = std::make_unique<Supervisor>(
        *cluster_, *watching_client_,
        SupervisorOptions{.job_id = job_.job_id(),
                          .max_restarts = options_.max_restarts,
                          .heartbeat_timeout = HeartbeatTimeoutOf(job_),
                          .join_timeout = kJoinTimeout + Crowding(options_) + GpuStart(options_) +
                                          (MayRescue(options_) ? kRescueTime : absl::ZeroDuration()),
                          .planner_timeout = kPlannerTimeout,
                          .say = [this](const std::string& text) { console_.SayNews(text); }});
  }
  return supervisor_->Step({.job = run.status(), .silence = run.silence(), .furthest = history_.furthest},
                           absl::Now());
}

bool UpRun::WorkersAreAlive() {
  v1::GetJobRequest request;
  request.set_job_id(job_.job_id());
  request.set_from_iteration(job_.training().iterations());
  const absl::StatusOr<v1::GetJobResponse> job = client_->GetJob(request, kAliveDeadline);
  if (!job.ok()) return true;
  const auto& workers = job->status().workers();
  return std::any_of(workers.begin(), workers.end(), [&](const v1::WorkerStatus& worker) {
    return cluster_->IsRunning(worker.rank()) &&
           absl::Milliseconds(worker.heartbeat_age_ms()) < HeartbeatTimeoutOf(job_);
  });
}

UpRun::Wait UpRun::AwaitWorkers(absl::Duration most) {
  const absl::Time deadline = absl::Now() + most;
  // One that has left, and cannot be heard of, has as long to end.
  absl::Time silent_since = absl::Now();
  while (!cluster_->WorkersEnded()) {
    if (WorkersAreAlive()) silent_since = absl::Now();
    if (absl::Now() - silent_since > kLeaving + Crowding(options_)) return Wait::kHung;
    if (absl::Now() > deadline) return Wait::kTooLong;
    if (stop_.WaitFor(kTick)) return Wait::kSignal;
  }
  return Wait::kEnded;
}

absl::Status UpRun::Explain(const absl::Status& failure) {
  // Workers that are supervised wait for the one that is missing.
  if (!supervised()) AwaitWorkers(kFailureGrace);
  v1::GetJobRequest request;
  request.set_job_id(job_.job_id());
  const absl::StatusOr<v1::GetJobResponse> job = client_->GetJob(request, absl::Seconds(2));
  std::string message(failure.message());
  if (job.ok() && !job->status().failure().empty()) {
    message = supervised() ? absl::StrCat(job->status().failure(), "\n", message) : job->status().failure();
  }
  const absl::Status process = cluster_->Check();
  if (!process.ok()) absl::StrAppend(&message, "\n", process.message());
  return absl::Status(failure.code(), message);
}

absl::Status UpRun::WaitForWorkers(const TrainingRun& run) {
  end_ = run.status().completed_iteration();
  switch (AwaitWorkers(kWorkersEnd + Crowding(options_))) {
    case Wait::kEnded:
      // One that died once all was done, or came too late to do anything, takes nothing away: what it has
      // written is there.
      CompleteLeftCheckpoints(setup_.folder.checkpoints, options_.kept_checkpoints, Say());
      return supervised() && !MissesLastCheckpoint() ? absl::OkStatus() : cluster_->Check();
    case Wait::kSignal:
      return absl::CancelledError("stopped by a signal");
    case Wait::kHung:
    case Wait::kTooLong:
      break;
  }
  return absl::DeadlineExceededError(
      absl::StrCat("the job is finished, but ", cluster_->NamesOfRunningWorkers(), " did not end"));
}

bool UpRun::MissesLastCheckpoint() const {
  // Drained before anything was done, there is nothing to write.
  if (!WritesCheckpoints(options_) || end_ <= job_.first_iteration()) return false;
  const auto newest = LastCheckpoint(setup_.folder.checkpoints).value_or(std::nullopt);
  return !newest.has_value() || newest->manifest.next_iteration != end_;
}

absl::Status UpRun::Finish() {
  RunArtifacts artifacts;
  artifacts.run_dir = options_.run_dir;
  artifacts.trace = options_.trace;
  const BestCheckpoint* best = validation_.best();
  if (const std::optional<ValidatedCheckpoint> kept = validation_.kept(); kept.has_value()) {
    artifacts.best = best->folder();
    artifacts.best_validation_loss = kept->loss;
  } else if (best != nullptr && best->best().has_value()) {
    artifacts.best_validation_loss = best->best()->loss;
  }
  const auto checkpoint = LastCheckpoint(setup_.folder.checkpoints).value_or(std::nullopt);
  if (checkpoint.has_value()) {
    artifacts.checkpoint = checkpoint->path;
  }
  console_.EndProgress();
  RunSummary summary = Summarize(history_.iterations);
  summary.kind = kind();
  summary.device = options_.device.name;
  summary.tasks = history_.tasks;
  AddPeaks(last_iteration_, summary);
  std::fputs((options_.json ? absl::StrCat(SummaryJson(summary, artifacts), "\n")
                            : absl::StrCat("\n", SummaryTable(summary, artifacts)))
                 .c_str(),
             stdout);
  if (options_.trace.empty()) return absl::OkStatus();
  if (const std::string note = trace_.ClockNote(); !note.empty()) console_.SayNews(note);
  return AnnotateError(trace_.Write(options_.trace), "--trace");
}

absl::Status UpRun::RunProcesses() {
  begun_ = absl::Now();
  absl::Status status = StartProcesses();
  if (status.ok()) {
    status = Train();
    // What was changed just before its end counts, too.
    TakeStrategies(strategies_.LookNow(*watching_client_));
  }
  cluster_->Stop();
  CompleteLeftCheckpoints(setup_.folder.checkpoints, options_.kept_checkpoints, Say());
  return status;
}

absl::Status UpRun::Conclude(absl::Status status) {
  if (status.ok()) ValidateTheLast();
  // What was trained before a failure is worth its summary too.
  if (status.ok() || !history_.iterations.empty()) status.Update(Finish());
  if (status.ok() || !LastCheckpoint(setup_.folder.checkpoints).value_or(std::nullopt).has_value())
    return status;
  return absl::Status(status.code(), absl::StrCat(status.message(), "\n`penstock up --resume --run-dir ",
                                                  options_.run_dir, "` goes on from the last checkpoint."));
}

}  // namespace penstock::cli
