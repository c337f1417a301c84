#include "planner/cli/up/run_up.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/files/files.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "planner/cli/plan_request.h"
#include "planner/cli/profile_file.h"
#include "planner/cli/up/batch_source.h"
#include "planner/cli/up/checkpoints.h"
#include "planner/cli/up/cost_profile_cache.h"
#include "planner/cli/up/local_cluster.h"
#include "planner/cli/up/machine.h"
#include "planner/cli/up/run_data.h"
#include "planner/cli/up/run_folder.h"
#include "planner/cli/up/run_summary.h"
#include "planner/cli/up/stop_signal.h"
#include "planner/cli/up/supervisor.h"
#include "planner/cli/up/trace_recorder.h"
#include "planner/cli/up/training_run.h"
#include "planner/client/planner_client.h"

namespace penstock::cli {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(50);
// Workers notice a lost peer within 10 s; then they have said why.
constexpr absl::Duration kFailureGrace = absl::Seconds(12);
constexpr absl::Duration kWorkersEnd = absl::Seconds(20);
// For a worker that has told the planner that it leaves, or is not heard of any more, to end.
constexpr absl::Duration kLeaving = absl::Seconds(4);
constexpr absl::Duration kAliveDeadline = absl::Seconds(1);
// Of simulated workers, and what each of them on a core adds: starting one keeps a core busy for about a
// second.
constexpr absl::Duration kHeartbeatTimeout = absl::Seconds(5);
constexpr absl::Duration kConnectTimeout = absl::Seconds(10);
constexpr absl::Duration kCrowding = absl::Seconds(2);
// For a worker to leave a failed epoch and register for the next one, and for a planner to answer, before
// they are taken to hang.
constexpr absl::Duration kJoinTimeout = absl::Seconds(20);
constexpr absl::Duration kPlannerTimeout = absl::Seconds(20);
// Epochs in a row that may fail while others are started again: more than there are restarts, because ranks
// may disagree on where to begin.
constexpr uint32_t kSpareRejoins = 10;
// Of the memory that is available, what the ranks may plan with.
constexpr double kMemoryShare = 0.8;

// One run, from its flags to its summary.
class UpRun {
 public:
  explicit UpRun(UpOptions options) : options_(std::move(options)) {}

  absl::Status Run();

 private:
  absl::Status FindBinaries();
  // Of the flags, or of the profile.
  absl::StatusOr<v1::ModelSpec> Model();
  absl::Status MakeJob();
  absl::Status CheckTracePath();
  absl::Status AddProfile();
  absl::Status StartProcesses();
  // What many workers on few cores need longer for whatever they wait for of each other.
  absl::Duration Crowding() const;
  // Flags of the workers that say what they run on, and how often they join a new epoch.
  std::vector<std::string> WorkerArguments() const;
  absl::Status Train();
  // Waits until the workers have said what happened, so that the cause and not its echo is shown.
  absl::Status Explain(const absl::Status& failure);
  // Starts again what died.
  absl::Status Supervise(const TrainingRun& run);
  absl::Status CheckLoss() const;
  absl::Status WaitForWorkers();
  // How waiting for the workers' end has ended.
  enum class Wait : uint8_t { kEnded, kHung, kTooLong, kSignal };
  // Until all workers have ended; those that give no sign of life for as long as the planner would take them
  // for lost are not waited for.
  Wait AwaitWorkers(absl::Duration most);
  // Whether a worker that still runs has been heard of; true where the planner cannot say.
  bool WorkersAreAlive();
  absl::Duration HeartbeatTimeout() const;
  // A checkpoint is written after the last iteration, and is not there.
  bool MissesLastCheckpoint() const;
  absl::Status Finish();

  RunKind kind() const { return simulated() ? RunKind::kSimulated : RunKind::kTraining; }
  bool simulated() const { return options_.device == UpDevice::kSimulated; }
  bool supervised() const { return options_.max_restarts > 0; }
  std::unique_ptr<BatchSource> Batches() const {
    return data_->MakeBatches(options_, job_.model().architecture());
  }
  std::FILE* TextOutput() const { return options_.json ? stderr : stdout; }
  void Say(const std::string& text) const;
  // The same while there may be a progress line.
  void SayNews(const std::string& text) const;
  // One line that is written over on a terminal; a line of its own elsewhere.
  void SayProgress(const std::string& line);
  void ShowIteration(const v1::IterationSummary& iteration);

  UpOptions options_;
  StopSignal stop_;
  std::string bin_dir_;
  std::optional<RunData> data_;
  // Where the flags name one.
  std::optional<v1::ProfileFile> profile_;
  v1::JobSpec job_;
  RunFolder folder_;
  std::unique_ptr<LocalCluster> cluster_;
  std::unique_ptr<PlannerClient> client_;
  std::unique_ptr<Supervisor> supervisor_;
  // As the run has it in the end: an iteration that was done again is there once.
  std::vector<v1::IterationSummary> iterations_;
  // The first iteration that was never shown.
  uint64_t furthest_ = 0;
  TraceRecorder trace_;
};

// Text for people goes to stdout, or to stderr where stdout is for machines.
void UpRun::Say(const std::string& text) const {
  std::fputs(absl::StrCat(text, "\n").c_str(), TextOutput());
  std::fflush(TextOutput());
}

void UpRun::SayNews(const std::string& text) const {
  Say(isatty(fileno(TextOutput())) == 0 ? text : absl::StrCat("\r\x1b[K", text));
}

void UpRun::SayProgress(const std::string& line) {
  if (isatty(fileno(TextOutput())) == 0) return Say(line);
  std::fputs(absl::StrCat("\r", line, "\x1b[K").c_str(), TextOutput());
  std::fflush(TextOutput());
}

absl::Status UpRun::FindBinaries() {
  PENSTOCK_ASSIGN_OR_RETURN(bin_dir_, BinaryFolder());
  for (const char* name : {"penstock-planner", "penstock-worker"}) {
    if (std::filesystem::exists(absl::StrCat(bin_dir_, "/", name))) continue;
    return absl::UnavailableError(absl::StrCat(name, " is not in ", bin_dir_, ", beside penstock: build it"));
  }
  return absl::OkStatus();
}

std::string DefaultJobId(const std::string& dataset) {
  std::string id = std::filesystem::path(dataset).filename().string();
  for (char& c : id) {
    if (!absl::ascii_isalnum(c) && c != '-' && c != '_' && c != '.') c = '-';
  }
  return absl::StrCat(id.substr(0, 64), "-",
                      absl::FormatTime("%Y%m%d-%H%M%S", absl::Now(), absl::LocalTimeZone()));
}

absl::StatusOr<v1::ModelSpec> UpRun::Model() {
  if (simulated()) return profile_->model();
  PENSTOCK_ASSIGN_OR_RETURN(const uint32_t vocab, data_->Vocab(options_));
  return ModelOfFlags(options_, vocab);
}

absl::Status UpRun::MakeJob() {
  PENSTOCK_RETURN_IF_ERROR(CheckDevice(options_));
  PENSTOCK_ASSIGN_OR_RETURN(data_, RunData::Open(options_));
  if (!options_.profile.empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(profile_, ReadProfileFile("--profile", options_.profile));
  }
  if (options_.job_id.empty()) {
    options_.job_id = DefaultJobId(options_.dataset.empty() ? options_.lengths : options_.dataset);
  }
  if (options_.run_dir.empty()) options_.run_dir = absl::StrCat("penstock-runs/", options_.job_id);
  PENSTOCK_ASSIGN_OR_RETURN(const v1::ModelSpec model, Model());
  PENSTOCK_ASSIGN_OR_RETURN(job_, MakeJobSpec(options_, model));
  // The first global batch is a sample of the data; with --lengths it is the one that `penstock plan` plans.
  SetTypicalSamples({Batches()->Make(0)}, &job_);
  if (simulated()) job_.set_heartbeat_timeout_ms(absl::ToInt64Milliseconds(kHeartbeatTimeout + Crowding()));
  PENSTOCK_ASSIGN_OR_RETURN(
      folder_,
      PrepareRunFolder({.path = options_.run_dir, .resume = options_.resume, .fresh = options_.fresh}, job_));
  job_.set_first_iteration(folder_.first_iteration);
  if (job_.first_iteration() >= options_.iterations) {
    return absl::InvalidArgumentError(absl::StrCat("--iterations ", options_.iterations,
                                                   ": the checkpoint is already at ", job_.first_iteration(),
                                                   "; ask for more"));
  }
  return absl::OkStatus();
}

// Better now than after the training.
absl::Status UpRun::CheckTracePath() {
  if (options_.trace.empty()) return absl::OkStatus();
  return AnnotateError(CheckWritable(options_.trace), "--trace");
}

absl::Status UpRun::AddProfile() {
  if (profile_.has_value()) {
    *job_.mutable_profile() = profile_->profile();
  } else {
    const MeasureOptions measure = {
        .worker_binary = absl::StrCat(bin_dir_, "/penstock-worker"),
        .model = job_.model(),
        .threads = ThreadsOfEachWorker(options_),
        .copies = WorkerCount(options_),
        .seconds = options_.profile_seconds,
        .cache_dir = absl::StrCat(CacheFolder(), "/profiles"),
        .on_start = [this] { Say("cost profile: measuring this model on this machine, once"); },
        .stopped = [this](absl::Duration timeout) { return stop_.WaitFor(timeout); }};
    PENSTOCK_ASSIGN_OR_RETURN(const MeasuredProfile measured, MeasureOrReadProfile(measure));
    Say(absl::StrCat("cost profile: ", measured.path, " (remove it to measure anew)"));
    *job_.mutable_profile() = measured.file.profile();
  }
  if (job_.planning().memory_limit_bytes() == 0 && !simulated()) {
    PENSTOCK_ASSIGN_OR_RETURN(const int64_t available, AvailableMemoryBytes());
    job_.mutable_planning()->set_memory_limit_bytes(
        static_cast<int64_t>(kMemoryShare * static_cast<double>(available)) / WorkerCount(options_));
  }
  return absl::OkStatus();
}

absl::Duration UpRun::Crowding() const {
  return kCrowding * WorkerCount(options_) / std::max(1U, std::thread::hardware_concurrency());
}

std::vector<std::string> UpRun::WorkerArguments() const {
  const uint32_t rejoins = supervised() ? options_.max_restarts + kSpareRejoins : 0;
  std::vector<std::string> arguments = {absl::StrCat("--max-rejoins=", rejoins)};
  if (!simulated()) return arguments;
  for (std::string& argument : SimulationArguments(options_.simulation))
    arguments.push_back(std::move(argument));
  arguments.emplace_back("--device=simulated");
  arguments.push_back(absl::StrCat("--connect-timeout=", absl::ToInt64Seconds(kConnectTimeout + Crowding())));
  return arguments;
}

absl::Status UpRun::StartProcesses() {
  cluster_ =
      std::make_unique<LocalCluster>(LocalClusterOptions{.bin_dir = bin_dir_, .log_dir = folder_.logs});
  std::string address = options_.planner_address;
  if (address.empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(address,
                              cluster_->StartPlanner({.store = absl::StrCat("sqlite:", folder_.planner_store),
                                                      .metrics_listen = options_.metrics_listen}));
  }
  client_ = std::make_unique<PlannerClient>(address);
  v1::RegisterJobRequest request;
  *request.mutable_job() = job_;
  PENSTOCK_RETURN_IF_ERROR(
      AnnotateError(client_->RegisterJob(request).status(), absl::StrCat("planner ", address)));
  const uint32_t workers = WorkerCount(options_);
  Say(absl::StrCat("planner ", address, ", job ", job_.job_id(), ", ", workers, " workers (",
                   options_.pipeline, " stages x ", options_.data, " replicas); logs in ", folder_.logs));
  return cluster_->StartWorkers({.planner_address = address,
                                 .job_id = job_.job_id(),
                                 .workers = workers,
                                 .threads = ThreadsOfEachWorker(options_),
                                 .dataset = simulated() ? "" : options_.dataset,
                                 .checkpoint_dir = folder_.checkpoints,
                                 .resume = options_.resume,
                                 .arguments = WorkerArguments()});
}

void UpRun::ShowIteration(const v1::IterationSummary& iteration) {
  // What follows it was done before it was done again.
  const auto same =
      std::ranges::lower_bound(iterations_, iteration.iteration(), {},
                               [](const v1::IterationSummary& other) { return other.iteration(); });
  iterations_.erase(same, iterations_.end());
  iterations_.push_back(iteration);
  if (iteration.iteration() < furthest_) return;
  furthest_ = iteration.iteration() + 1;
  SayProgress(ProgressLine(iteration, options_.iterations - 1, kind()));
  if (options_.trace.empty()) return;
  v1::GetIterationRequest request;
  request.set_job_id(job_.job_id());
  request.set_iteration(iteration.iteration());
  // The planner holds recent iterations only; one that is gone is missing in the trace.
  const absl::StatusOr<v1::GetIterationResponse> measured = client_->GetIteration(request);
  if (measured.ok()) trace_.Add(*measured);
}

absl::Status UpRun::Train() {
  const std::unique_ptr<BatchSource> batches = Batches();
  TrainingRun run(*client_, job_, *batches, TrainingRun::kPatience,
                  supervised() ? TrainingRun::Epochs::kMany : TrainingRun::Epochs::kOne);
  while (!run.finished()) {
    const absl::Status step =
        run.Step([this](const v1::IterationSummary& iteration) { ShowIteration(iteration); });
    if (!step.ok()) return Explain(step);
    PENSTOCK_RETURN_IF_ERROR(CheckLoss());
    if (run.finished()) break;
    if (const absl::Status processes = Supervise(run); !processes.ok()) return Explain(processes);
    if (stop_.WaitFor(kTick)) return absl::CancelledError("stopped by a signal");
  }
  return WaitForWorkers();
}

absl::Status UpRun::Supervise(const TrainingRun& run) {
  if (!supervised()) return cluster_->Check();
  if (supervisor_ == nullptr) {
    supervisor_ = std::make_unique<Supervisor>(
        *cluster_, *client_,
        SupervisorOptions{.job_id = job_.job_id(),
                          .max_restarts = options_.max_restarts,
                          .heartbeat_timeout = HeartbeatTimeout(),
                          .join_timeout = kJoinTimeout + Crowding(),
                          .planner_timeout = kPlannerTimeout,
                          .say = [this](const std::string& text) { SayNews(text); }});
  }
  return supervisor_->Step({.job = run.status(), .silence = run.silence(), .furthest = furthest_},
                           absl::Now());
}

// A model that is lost stays lost.
absl::Status UpRun::CheckLoss() const {
  if (iterations_.empty() || std::isfinite(iterations_.back().loss())) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat("the loss of iteration ", iterations_.back().iteration(),
                                         " is not a number: try a lower --lr or a longer --warmup"));
}

absl::Duration UpRun::HeartbeatTimeout() const {
  return job_.heartbeat_timeout_ms() > 0 ? absl::Milliseconds(job_.heartbeat_timeout_ms())
                                         : kHeartbeatTimeout;
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
           absl::Milliseconds(worker.heartbeat_age_ms()) < HeartbeatTimeout();
  });
}

UpRun::Wait UpRun::AwaitWorkers(absl::Duration most) {
  const absl::Time deadline = absl::Now() + most;
  // One that has left, and cannot be heard of, has as long to end.
  absl::Time silent_since = absl::Now();
  while (!cluster_->WorkersEnded()) {
    if (WorkersAreAlive()) silent_since = absl::Now();
    if (absl::Now() - silent_since > kLeaving) return Wait::kHung;
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

absl::Status UpRun::WaitForWorkers() {
  switch (AwaitWorkers(kWorkersEnd + Crowding())) {
    case Wait::kEnded:
      // One that died once all was done, or came too late to do anything, takes nothing away.
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
  if (options_.checkpoint_every == 0 || options_.iterations % options_.checkpoint_every != 0) return false;
  const auto newest = NewestCheckpoint(folder_.checkpoints);
  return !newest.has_value() || newest->next_iteration != options_.iterations;
}

absl::Status UpRun::Finish() {
  RunArtifacts artifacts{.run_dir = options_.run_dir, .checkpoint = "", .trace = options_.trace};
  if (const auto checkpoint = NewestCheckpoint(folder_.checkpoints); checkpoint.has_value()) {
    artifacts.checkpoint = checkpoint->path;
  }
  if (isatty(fileno(TextOutput())) != 0) Say("");  // below the progress line
  RunSummary summary = Summarize(iterations_);
  summary.kind = kind();
  std::fputs((options_.json ? absl::StrCat(SummaryJson(summary, artifacts), "\n")
                            : absl::StrCat("\n", SummaryTable(summary, artifacts)))
                 .c_str(),
             stdout);
  return options_.trace.empty() ? absl::OkStatus() : AnnotateError(trace_.Write(options_.trace), "--trace");
}

absl::Status UpRun::Run() {
  PENSTOCK_RETURN_IF_ERROR(FindBinaries());
  PENSTOCK_RETURN_IF_ERROR(MakeJob());
  PENSTOCK_RETURN_IF_ERROR(CheckTracePath());
  PENSTOCK_RETURN_IF_ERROR(AddProfile());
  absl::Status status = StartProcesses();
  if (status.ok()) status = Train();
  cluster_->Stop();
  // What was trained before a failure is worth its summary too.
  if (status.ok() || !iterations_.empty()) status.Update(Finish());
  if (status.ok() || !NewestCheckpoint(folder_.checkpoints).has_value()) return status;
  return absl::Status(status.code(),
                      absl::StrCat(status.message(), "\nThe same command with --resume and --run-dir ",
                                   options_.run_dir, " goes on from the last checkpoint."));
}

}  // namespace

absl::Status RunUp(UpOptions options) { return NameFlags(UpRun(std::move(options)).Run()); }

}  // namespace penstock::cli
