#include "worker/runtime/worker_process.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/checkpoint/checkpoint_writing.h"
#include "common/dataset/joined_dataset.h"
#include "common/files/folder_changes.h"
#include "common/logging/logging.h"
#include "common/metrics/metrics.h"
#include "common/metrics/process_metrics.h"
#include "common/secret/incarnation.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "common/tracing/tracing.h"
#include "penstock/client/finished_job.h"
#include "worker/agent/planner_agent.h"
#include "worker/comm/communicator.h"
#include "worker/device/device.h"
#include "worker/device/simulated/simulated_device.h"
#include "worker/memory/tensor_memory.h"
#include "worker/metrics/worker_metrics.h"
#include "worker/runtime/checkpoint_store.h"
#include "worker/runtime/checkpointing.h"
#include "worker/runtime/communication.h"
#include "worker/runtime/epoch_stop.h"
#include "worker/runtime/holder_rings.h"
#include "worker/runtime/rejoin.h"
#include "worker/runtime/rescue.h"
#include "worker/runtime/trainer.h"
#include "worker/runtime/training_loop.h"
#include "worker/runtime/wrong_clock.h"
#include "worker/tracing/worker_tracing.h"

namespace penstock::worker {
namespace {

// An epoch that has failed has this long to be over, and the worker to join the next one: more than a pass
// takes, which cannot be aborted.
constexpr absl::Duration kEpochGrace = absl::Seconds(60);
// For a planner to notice that who held this worker's rank is gone: longer than it waits for heartbeats by
// default.
constexpr absl::Duration kTakenTimeout = absl::Seconds(15);
// For telling the planner why a worker that ends could not go on.
constexpr absl::Duration kLastWord = absl::Seconds(2);

uint64_t RandomIncarnation() {
  std::random_device device;
  const uint64_t value = (uint64_t{device()} << 32) | device();
  return value != 0 ? value : 1;
}

// What the rank computes on, and the data that it reads.
struct Accelerator {
  std::unique_ptr<IndexedDataset> dataset;
  std::unique_ptr<Device> device;
};

absl::StatusOr<Accelerator> MakeAccelerator(const RunOptions& options) {
  Accelerator accelerator;
  if (options.device == kSimulatedDevice) {
    accelerator.device = MakeSimulatedDevice(options.simulation);
    return accelerator;
  }
  std::vector<std::string> datasets = options.datasets;
  datasets.insert(datasets.end(), options.validation.begin(), options.validation.end());
  PENSTOCK_ASSIGN_OR_RETURN(accelerator.dataset, OpenJoined(datasets));
  PENSTOCK_ASSIGN_OR_RETURN(accelerator.device,
                            MakeTorchDevice(options.device, accelerator.dataset.get(),
                                            options.cut_input_start ? InputCut::kStart : InputCut::kEnd));
  return accelerator;
}

// Null: none are wanted.
absl::StatusOr<std::unique_ptr<MetricsServer>> ServeMetrics(const RunOptions& options,
                                                            MetricsRegistry& registry) {
  if (options.metrics_listen.empty()) return nullptr;
  auto server = MetricsServer::Start(options.metrics_listen, &registry);
  if (!server.ok()) return AnnotateError(server.status(), "--metrics-listen");
  LogInfo("serving metrics", {{"port", (*server)->port()}});
  return server;
}

// What the worker has once it is registered and the others are there. Members go away in reverse order.
struct Joined {
  std::unique_ptr<StoreServer> store;
  std::unique_ptr<Communicator> communicator;
};

// Blocks until all ranks have joined, or the epoch has failed.
absl::StatusOr<Joined> Join(const RunOptions& options, PlannerAgent& agent, const EpochStop& stop,
                            Device& device) {
  const Registration& self = agent.registration();
  if (self.epoch_secret.empty()) {
    LogWarning("the planner gave no secret: whoever reaches --host may join the epoch; upgrade the planner",
               {{"epoch", self.epoch}});
  }
  Joined joined;
  if (self.rank == 0) {
    PENSTOCK_ASSIGN_OR_RETURN(joined.store, StoreServer::Start(options.host, self.epoch_secret));
    agent.AnnounceRendezvous(absl::StrCat(options.host, ":", joined.store->port()));
  }
  PENSTOCK_ASSIGN_OR_RETURN(const Rendezvous rendezvous,
                            agent.WaitUntilReady(absl::Seconds(options.ready_timeout_s)));
  CommunicatorOptions communication = {.host = options.host,
                                       .rendezvous_address = rendezvous.address,
                                       .epoch = self.epoch,
                                       .secret = self.epoch_secret,
                                       .groups = {},
                                       .timeout = std::chrono::seconds(options.transfer_timeout_s),
                                       .connect_timeout = std::chrono::seconds(options.connect_timeout_s),
                                       .still_wanted = [&stop] { return stop.reason(); }};
  SetGroups(self.job, self.rank, communication);
  PENSTOCK_ASSIGN_OR_RETURN(joined.communicator, device.MakeCommunicator(communication));
  if (joined.communicator->keeps_store()) return joined;
  if (self.job.world_size() > 1) PENSTOCK_RETURN_IF_ERROR(AwaitAllJoined(communication));
  // Nobody needs it any more.
  joined.store.reset();
  return joined;
}

// One rank in the epochs of its job.
class Worker {
 public:
  Worker(const RunOptions& options, Accelerator accelerator, Shutdown& shutdown, WorkerMetrics& metrics,
         const WorkerTracing& tracing)
      : options_(options),
        accelerator_(std::move(accelerator)),
        shutdown_(shutdown),
        metrics_(metrics),
        tracing_(tracing) {}

  // One epoch. `again`: after another one, whatever --resume says.
  EpochEnd RunEpoch(bool again) {
    EpochEnd end;
    const absl::Status found = FindCheckpoint(again);
    end.status = found.ok() ? JoinAndTrain(end.next_iteration) : found;
    if (!end.status.ok()) metrics_.OnEpochFailed(end.status);
    return end;
  }

 private:
  absl::Status FindCheckpoint(bool again) {
    if (MayRescue() && (again || options_.resume) && !std::exchange(took_part_in_rescue_, false)) {
      PENSTOCK_RETURN_IF_ERROR(AwaitRescue(options_.checkpoint_dir, options_.job_id,
                                           [this](absl::Duration time) { return shutdown_.WaitFor(time); }));
    }
    if (knows_start_) {
      PENSTOCK_ASSIGN_OR_RETURN(checkpoint_,
                                FindCheckpointOfJob(options_.checkpoint_dir, options_.job_id, started_from_));
    } else if (options_.resume) {
      PENSTOCK_ASSIGN_OR_RETURN(started_from_, FindNewestCheckpoint(options_.checkpoint_dir));
      checkpoint_ = started_from_;
    }
    knows_start_ = true;
    return absl::OkStatus();
  }

  uint64_t NextIncarnation() {
    return options_.incarnation_key.empty() ? RandomIncarnation()
                                            : IncarnationOf(options_.incarnation_key, joins_++);
  }

  absl::StatusOr<std::unique_ptr<PlannerAgent>> Register() {
    return PlannerAgent::Register(
        {.planner = options_.planner,
         .security = options_.security,
         .job_id = options_.job_id,
         .host = options_.host,
         .rank = options_.rank,
         .incarnation = NextIncarnation(),
         .first_iteration = checkpoint_.has_value() ? checkpoint_->manifest.next_iteration : 0,
         .planner_timeout = PlannerTimeout(),
         .taken_timeout = std::min(PlannerTimeout(), kTakenTimeout),
         .wait = [this](absl::Duration time) { return shutdown_.WaitFor(time); }});
  }

  // A rank that the planner refuses: a launcher's variable is easily not what its user thinks.
  absl::Status NameRankSource(const absl::Status& refusal) const {
    const bool of_rank = absl::IsInvalidArgument(refusal) || absl::IsAlreadyExists(refusal);
    if (!of_rank || !options_.rank.has_value()) return refusal;
    return AnnotateError(refusal, absl::StrCat(options_.rank_from, " ", *options_.rank));
  }

  absl::Status JoinAndTrain(uint64_t& next_iteration) {
    // In this order: the agent's threads abort the communicator and must have ended before it goes away.
    EpochStop stop(shutdown_, EpochGrace());
    Joined joined;
    absl::StatusOr<std::unique_ptr<PlannerAgent>> registered = Register();
    if (const auto iterations = FinishedJob(registered.status()); iterations.has_value())
      return ComeTooLate(*iterations);
    if (!registered.ok()) return NameRankSource(registered.status());
    const std::unique_ptr<PlannerAgent> agent = *std::move(registered);
    const Registration& self = agent->registration();
    std::unique_ptr<Trainer> trainer;
    LogInfo("registered", {{"job", options_.job_id},
                           {"rank", self.rank},
                           {"rank_from", options_.rank_from.empty() ? "planner" : options_.rank_from},
                           {"epoch", self.epoch}});
    metrics_.OnEpochJoined(options_.job_id, self);
    const uint64_t handler = shutdown_.AddHandler([&agent](const absl::Status& why) { agent->Stop(why); });
    agent->SetFailureListener([&stop](const absl::Status& why) { stop.Request(why); });
    const absl::Status status = Train(*agent, stop, joined, trainer, next_iteration);
    // The planner hears of a failure before the peers see this rank's connections close, so that it knows
    // what came first.
    const absl::Status conclusion = Conclude(status, *agent);
    if (trainer != nullptr && MayRejoin(conclusion) && MayRescue() && shutdown_.reason().ok()) {
      stop.Request(conclusion);
      // It is not stuck: what follows has the time anew.
      shutdown_.ClearLimit();
      shutdown_.SetLimit(EpochGrace(), conclusion);
      RescueWhatIsHeld(*agent, *trainer);
    }
    shutdown_.RemoveHandler(handler);
    return conclusion;
  }

  // The job ended while this rank was being started again. A rank that was killed after its last report may
  // have left the last checkpoint without its seal, which is the first rank's to set.
  absl::Status ComeTooLate(uint64_t iterations) const {
    LogInfo("the job is finished: there is nothing left to do",
            {{"job", options_.job_id}, {"iterations", iterations}});
    const bool is_first = options_.rank.value_or(0) == 0;
    const std::vector<uint64_t> partial = WritesCheckpoints() && is_first
                                              ? PartialCheckpoints(options_.checkpoint_dir)
                                              : std::vector<uint64_t>();
    if (std::ranges::count(partial, iterations) == 0) return absl::OkStatus();
    PENSTOCK_RETURN_IF_ERROR(CompleteCheckpoint(options_.checkpoint_dir, iterations,
                                                options_.kept_checkpoints, RealFolderChanges()));
    LogInfo("checkpoint written", {{"directory", options_.checkpoint_dir}, {"next_iteration", iterations}});
    return absl::OkStatus();
  }

  // Writes what this rank holds, where the ranks that are left can go on from it.
  void RescueWhatIsHeld(PlannerAgent& agent, const Trainer& trainer) {
    const Registration& self = agent.registration();
    if (HolderRings(self.job).empty()) return;
    const absl::Time began = absl::Now();
    const absl::StatusOr<std::optional<Checkpoint>> newest =
        FindCheckpointOfJob(options_.checkpoint_dir, options_.job_id, started_from_);
    const bool has_one = newest.ok() && newest->has_value();
    agent.Linger();
    const uint64_t first = trainer.first_iteration();
    const uint64_t iterations = trainer.holds().value_or(first) - first + 1;
    const RescueReport report =
        Rescue({.directory = options_.checkpoint_dir,
                .rank = self.rank,
                .epoch = self.epoch,
                .job = &self.job,
                .holds = trainer.holds(),
                .goes_back_to = has_one ? (*newest)->manifest.next_iteration : self.job.first_iteration,
                .iteration_time = (began - training_began_) / static_cast<double>(iterations),
                .part =
                    [&](RescueParts::StillWanted still_wanted) {
                      return trainer.PartOfRescue(std::move(still_wanted));
                    },
                .send_reports = [&](absl::Duration time) { agent.SendLeftReports(time).IgnoreError(); },
                .completed = [&] { return agent.Completed(); },
                .wait = [this, told = absl::InfiniteFuture()](
                            absl::Duration time) mutable { return WaitInRescue(time, told); },
                .kept = options_.kept_checkpoints,
                .longest = std::min(kLongestRescue, EpochGrace() / 2)});
    if (report.end == RescueEnd::kNothingToSave) return;
    took_part_in_rescue_ = report.end != RescueEnd::kNotSound;
    metrics_.OnRescue(NameOf(report.end), absl::Now() - began);
  }

  // Who is told to end while a rescue is under way has half of the grace for it. `told`: when that was.
  absl::Status WaitInRescue(absl::Duration time, absl::Time& told) {
    if (shutdown_.WaitFor(time).ok()) return absl::OkStatus();
    told = std::min(told, absl::Now());
    if (absl::Now() - told > shutdown_.grace() / 2) return shutdown_.reason();
    absl::SleepFor(time);
    return absl::OkStatus();
  }

  absl::Status Train(PlannerAgent& agent, EpochStop& stop, Joined& joined, std::unique_ptr<Trainer>& trainer,
                     uint64_t& next_iteration) {
    PENSTOCK_ASSIGN_OR_RETURN(joined, Join(options_, agent, stop, *accelerator_.device));
    const SoftStop soft_stop(shutdown_, SoftStopTime());
    stop.SetAbort([communicator = joined.communicator.get()](const absl::Status& why) {
      communicator->Abort(std::string(why.message()));
    });
    // The checkpoints are used by the trainer's votes, and copy what it trains.
    Checkpointing* writing = nullptr;
    trainer = std::make_unique<Trainer>(
        TrainerParts{.registration = &agent.registration(),
                     .device = accelerator_.device.get(),
                     .communicator = joined.communicator.get(),
                     .checkpoint_dir = options_.checkpoint_dir,
                     .checkpoint = checkpoint_,
                     .init_from = options_.init_from,
                     .base = options_.base,
                     .votes = [&] { return VotesOf(*writing); },
                     .gradients_dir = options_.gradients_dir,
                     .watches_steps = MayRescue() && !HolderRings(agent.registration().job).empty()});
    Checkpointing checkpoints(
        {.directory = WritesCheckpoints() ? options_.checkpoint_dir : "",
         .rank = agent.registration().rank,
         .job = &agent.registration().job,
         .part =
             [&](bool training_goes_on, CheckpointingParts::StillWanted still_wanted) {
               return trainer->Part(training_goes_on, std::move(still_wanted));
             },
         .reported = [&] { return agent.Reported(); },
         .flush_reports = [&] { return agent.FlushReports(PlannerTimeout()); },
         .meet = [&](bool says) { return trainer->Meet(says); },
         .still_wanted = [&stop] { return stop.reason(); },
         .part_written = [&](size_t bytes, absl::Duration took) { metrics_.OnCheckpointPart(bytes, took); },
         .kept = options_.kept_checkpoints,
         .goes_on_after_failure = options_.checkpoint_failures == "continue",
         .given_up = [&](const absl::Status& why) { metrics_.OnCheckpointFailed(why); }});
    writing = &checkpoints;
    WrongClock clock(options_.clock_errors, agent.registration().rank);
    training_began_ = absl::Now();
    agent.StartPrograms(trainer->first_iteration());
    const absl::Status status = RunTrainingLoop(
        agent,
        {.prepare = [&](std::shared_ptr<const Program> program) { trainer->Prepare(std::move(program)); },
         .run =
             [&](const Program& program) {
               absl::StatusOr<IterationResult> result = RunTraced(*trainer, agent.registration(), program);
               if (result.ok()) clock.Read(program.iteration, &*result);
               return result;
             },
         .checkpoints = &checkpoints,
         .stop_reason = [&] { return shutdown_.wanted(); },
         .ran =
             [&](const Program& program, const IterationResult& result, absl::Duration waited) {
               metrics_.OnIteration(program, result, waited);
               tracing_.OnIteration(program, result, agent.registration().epoch, waited);
             },
         .finished = [&](uint64_t iteration) { next_iteration = iteration + 1; },
         .report_timeout = PlannerTimeout()});
    if (!status.ok()) checkpoints.EpochHasFailed();
    // A disk that hangs would keep this thread: then the process ends.
    if (!status.ok() && checkpoints.IsWritingAfter(EpochGrace())) {
      shutdown_.SetLimit(absl::ZeroDuration(), status);
    }
    return status;
  }

  absl::StatusOr<IterationResult> RunTraced(Trainer& trainer, const Registration& self,
                                            const Program& program) {
    const absl::Time began = absl::Now();
    absl::StatusOr<IterationResult> result = trainer.Run(program);
    if (!result.ok()) tracing_.OnIterationFailed(program, self.epoch, began, absl::Now(), result.status());
    return result;
  }

  // Says to the planner how it ended and returns the reason that is worth telling the user.
  absl::Status Conclude(const absl::Status& status, PlannerAgent& agent) {
    if (status.ok() || shutdown_.signalled()) {
      agent.Leave();
      if (!status.ok()) return shutdown_.reason();
      LogInfo("the job is finished", {{"rank", agent.registration().rank}});
      return status;
    }
    return agent.ReportFailure(status, options_.max_rejoins > 0 ? PlannerTimeout() : kLastWord);
  }

  Votes VotesOf(const Checkpointing& checkpoints) const {
    return {.stop = !shutdown_.wanted().ok(), .unwritten = checkpoints.unwritten()};
  }

  absl::Duration EpochGrace() const { return options_.max_rejoins > 0 ? kEpochGrace : shutdown_.grace(); }
  absl::Duration SoftStopTime() const {
    return WritesCheckpoints() ? absl::Seconds(options_.stop_seconds) : absl::ZeroDuration();
  }
  bool WritesCheckpoints() const { return !options_.checkpoint_dir.empty() && !options_.no_checkpoints; }
  bool MayRescue() const { return WritesCheckpoints() && !options_.no_rescue; }
  absl::Duration PlannerTimeout() const { return absl::Seconds(options_.planner_timeout_s); }

  const RunOptions& options_;
  const Accelerator accelerator_;
  Shutdown& shutdown_;
  WorkerMetrics& metrics_;
  const WorkerTracing& tracing_;
  // Epochs that it registered for.
  uint64_t joins_ = 0;
  // What this process began with, once that could be seen.
  std::optional<Checkpoint> started_from_;
  bool knows_start_ = false;
  // What the epoch begins with.
  std::optional<Checkpoint> checkpoint_;
  // Its first program was asked for.
  absl::Time training_began_;
  // In the epoch before: it knows what came of it.
  bool took_part_in_rescue_ = false;
};

}  // namespace

void PrepareProcess() {
  CountCpuTensors();
  at::set_num_interop_threads(1);
}

absl::Status RunWorker(const RunOptions& options, Shutdown& shutdown) {
  at::set_num_threads(static_cast<int>(options.threads));
  PENSTOCK_ASSIGN_OR_RETURN(Accelerator accelerator, MakeAccelerator(options));
  const std::unique_ptr<SpanExporter> spans = StartTracing(options.otlp_endpoint, "penstock-worker");
  const WorkerTracing tracing(spans.get(), options.job_id);
  MetricsRegistry registry;
  AddProcessMetrics(&registry, "penstock-worker");
  AddTracingMetrics(&registry, spans.get());
  WorkerMetrics metrics(registry);
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<MetricsServer> server, ServeMetrics(options, registry));
  Worker worker(options, std::move(accelerator), shutdown, metrics, tracing);
  const absl::Status status = TrainThroughFailures(
      {.most = options.max_rejoins}, {.run_epoch = [&](bool again) { return worker.RunEpoch(again); },
                                      .wait = [&](absl::Duration time) { return shutdown.WaitFor(time); }});
  shutdown.Disarm();
  if (spans != nullptr) spans->Stop(kLastSpans);
  return status;
}

}  // namespace penstock::worker
