#include "tests/system/harness/cluster.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/mesh/mesh_ranks.h"
#include "common/process/log_tail.h"
#include "penstock/client/retry_iteration.h"
#include "tests/support/port_file.h"

namespace penstock::testing {
namespace {

constexpr size_t kLogLines = 12;
// How often a condition that no process can signal is looked at.
constexpr absl::Duration kTick = absl::Milliseconds(10);

std::string Binary(const std::string& name) { return absl::StrCat(PENSTOCK_BINARY_DIR, "/", name); }

std::vector<std::string> OnPlace(const Place& place, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), place.launcher.begin(), place.launcher.end());
  return arguments;
}

// One thread each; and no AMX, which some virtual machines announce and do not keep.
const std::vector<std::pair<std::string, std::string>> kWorkerEnvironment = {
    {"OMP_NUM_THREADS", "1"}, {"ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16"}};

}  // namespace

std::string Cluster::planner_address() const {
  if (!planners_.empty()) return planners_;
  return absl::StrCat(options_.planner.address, ":", planner_port_);
}

void Cluster::StartPlanner() {
  const std::string port_file = folder_.Path(absl::StrCat("planner-", ++generation_, ".json"));
  const std::string store =
      options_.store.empty() ? absl::StrCat("sqlite:", folder_.Path("planner.db")) : options_.store;
  absl::StatusOr<std::unique_ptr<ChildProcess>> started = ChildProcess::Start(
      {.arguments = OnPlace(options_.planner,
                            {Binary("penstock-planner"), "--listen", planner_address(), "--allow-anyone",
                             absl::StrCat("--port-file=", port_file), absl::StrCat("--store=", store)}),
       .log_path = folder_.Path("planner.log")});
  ASSERT_TRUE(started.ok()) << started.status();
  planner_ = *std::move(started);
  const absl::StatusOr<ServedPorts> ports = AwaitPorts(*planner_, port_file, kDeadline);
  ASSERT_TRUE(ports.ok()) << ports.status() << "\n" << PlannerLog();
  client_ = std::make_unique<PlannerClient>(planner_address());
}

void Cluster::UsePlanners(const std::string& addresses) {
  planners_ = addresses;
  client_ = std::make_unique<PlannerClient>(addresses);
}

void Cluster::Tick() {
  if (planner_ != nullptr) {
    planner_->WaitFor(kTick);
  } else {
    absl::SleepFor(kTick);
  }
}

void Cluster::Register(const v1::JobSpec& job) {
  v1::RegisterJobRequest request;
  *request.mutable_job() = job;
  const absl::Status status = client_->RegisterJob(request).status();
  ASSERT_TRUE(status.ok()) << status;
}

void Cluster::Submit(const std::string& job_id, const std::vector<v1::Batch>& batches) {
  const absl::Time deadline = absl::Now() + kDeadline;
  for (size_t next = 0; next < batches.size();) {
    v1::SubmitBatchesRequest request;
    request.set_job_id(job_id);
    *request.add_batches() = batches[next];
    const absl::Status status = client_->SubmitBatches(request).status();
    if (status.ok()) {
      ++next;
      continue;
    }
    ASSERT_TRUE(absl::IsResourceExhausted(status) && absl::Now() < deadline) << status << "\n"
                                                                             << PlannerLog();
    Tick();
  }
}

std::unique_ptr<ChildProcess> Cluster::StartWorker(const v1::JobSpec& job, uint32_t rank,
                                                   const WorkerSettings& settings,
                                                   const std::string& log_path) {
  const Place place = rank < settings.places.size() ? settings.places[rank] : Place();
  std::vector<std::string> arguments = {
      Binary("penstock-worker"), "--planner", planner_address(), "--job", job.job_id(), "--dataset",
      settings.dataset,          "--host",    place.address};
  auto environment = kWorkerEnvironment;
  const auto add = [&](const char* flag, const std::string& value) {
    if (!value.empty()) arguments.insert(arguments.end(), {flag, value});
  };
  if (settings.rank_variable.empty()) {
    add("--rank", absl::StrCat(rank));
  } else {
    environment.emplace_back(settings.rank_variable, absl::StrCat(rank));
  }
  add("--checkpoint-dir", settings.checkpoint_dir);
  add("--dump-gradients", settings.gradients_dir);
  if (settings.resume) arguments.push_back("--resume");
  arguments.insert(arguments.end(), settings.arguments.begin(), settings.arguments.end());
  absl::StatusOr<std::unique_ptr<ChildProcess>> worker =
      ChildProcess::Start({.arguments = OnPlace(place, std::move(arguments)),
                           .environment = std::move(environment),
                           .log_path = log_path});
  EXPECT_TRUE(worker.ok()) << worker.status();
  return worker.ok() ? *std::move(worker) : nullptr;
}

void Cluster::StartWorkers(const v1::JobSpec& job, const WorkerSettings& settings) {
  workers_.clear();
  const uint32_t ranks = static_cast<uint32_t>(RanksOf(job.mesh()));
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    workers_.push_back(StartWorker(job, rank, settings, WorkerLogPath(rank)));
    ASSERT_NE(workers_.back(), nullptr);
  }
}

void Cluster::RestartWorker(const v1::JobSpec& job, uint32_t rank, const WorkerSettings& settings) {
  workers_[rank] = StartWorker(job, rank, settings, WorkerLogPath(rank));
  ASSERT_NE(workers_[rank], nullptr);
}

v1::JobStatus Cluster::StatusOf(const std::string& job_id) {
  v1::GetJobRequest request;
  request.set_job_id(job_id);
  const absl::StatusOr<v1::GetJobResponse> answer = client_->GetJob(request);
  EXPECT_TRUE(answer.ok()) << answer.status();
  return answer.ok() ? answer->status() : v1::JobStatus();
}

void Cluster::WaitUntilRunning(const std::string& job_id) {
  const absl::Time deadline = absl::Now() + kDeadline;
  while (StatusOf(job_id).state() != v1::JOB_STATE_RUNNING) {
    ASSERT_LT(absl::Now(), deadline) << PlannerLog();
    Tick();
  }
}

void Cluster::WaitForIterations(const std::string& job_id, uint64_t iterations, Epochs epochs) {
  const absl::Time deadline = absl::Now() + kDeadline;
  for (;;) {
    const v1::JobStatus status = StatusOf(job_id);
    if (status.completed_iteration() >= iterations) return;
    ASSERT_LT(absl::Now(), deadline) << status.DebugString() << WorkerLog(0);
    if (epochs == Epochs::kOne) {
      ASSERT_NE(status.state(), v1::JOB_STATE_FAILED) << status.failure() << AllWorkerLogs();
    }
    Tick();
  }
}

void Cluster::WaitForCheckpoint(const std::string& directory, uint64_t next_iteration) {
  const absl::Time deadline = absl::Now() + kDeadline;
  while (!OpenCheckpoint(directory, next_iteration, CheckpointDepth::kSizes).ok()) {
    ASSERT_LT(absl::Now(), deadline) << "no checkpoint " << next_iteration << AllWorkerLogs();
    Tick();
  }
}

void Cluster::WaitForIterationAfterEpoch(const std::string& job_id, uint64_t epoch) {
  const absl::Time deadline = absl::Now() + kDeadline;
  for (;;) {
    const v1::JobStatus status = StatusOf(job_id);
    const auto reported = [](const v1::WorkerStatus& worker) { return worker.last_iteration() >= 0; };
    if (status.epoch() > epoch && std::all_of(status.workers().begin(), status.workers().end(), reported))
      return;
    if (status.state() == v1::JOB_STATE_FINISHED) return;
    ASSERT_LT(absl::Now(), deadline) << status.DebugString() << AllWorkerLogs();
    Tick();
  }
}

ExitStatus Cluster::ExpectEnd(uint32_t rank, absl::Duration timeout) {
  const std::optional<ExitStatus> ended = workers_[rank]->WaitFor(timeout);
  EXPECT_TRUE(ended.has_value()) << "rank " << rank << " still runs\n" << WorkerLog(rank);
  return ended.value_or(ExitStatus());
}

void Cluster::ExpectAllFinish(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  for (uint32_t rank = 0; rank < workers_.size(); ++rank) {
    const ExitStatus ended = ExpectEnd(rank, std::max(deadline - absl::Now(), absl::Seconds(1)));
    EXPECT_TRUE(ended.ok()) << "rank " << rank << " " << ended.ToString() << "\n" << WorkerLog(rank);
  }
}

std::string Cluster::WorkerLogPath(uint32_t rank) const {
  return folder_.Path(absl::StrCat("worker-", rank, ".log"));
}

std::string Cluster::AllWorkerLogs() const {
  std::string logs;
  for (uint32_t rank = 0; rank < workers_.size(); ++rank)
    absl::StrAppend(&logs, "\nrank ", rank, ":\n", WorkerLog(rank));
  return logs;
}

std::string Cluster::WorkerLog(uint32_t rank) const { return LogTail(WorkerLogPath(rank), kLogLines); }

std::string Cluster::PlannerLog() const { return LogTail(folder_.Path("planner.log"), kLogLines); }

v1::GetIterationResponse Cluster::Iteration(const std::string& job_id, uint64_t iteration) {
  v1::GetIterationRequest request;
  request.set_job_id(job_id);
  request.set_iteration(iteration);
  const absl::StatusOr<v1::GetIterationResponse> answer = client_->GetIteration(request);
  EXPECT_TRUE(answer.ok()) << answer.status();
  return answer.value_or(v1::GetIterationResponse());
}

std::vector<v1::IterationSummary> Cluster::Summaries(const std::string& job_id) {
  v1::GetJobRequest request;
  request.set_job_id(job_id);
  const absl::StatusOr<v1::GetJobResponse> answer = client_->GetJob(request);
  EXPECT_TRUE(answer.ok()) << answer.status();
  if (!answer.ok()) return {};
  return {answer->iterations().begin(), answer->iterations().end()};
}

std::vector<Figures> Cluster::FiguresOf(const std::string& job_id) {
  std::vector<Figures> figures;
  for (const v1::IterationSummary& summary : Summaries(job_id)) {
    figures.push_back({summary.iteration(), summary.loss(), summary.gradient_norm()});
  }
  return figures;
}

}  // namespace penstock::testing
