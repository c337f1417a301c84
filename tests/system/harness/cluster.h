// A planner and workers as real processes on free loopback ports, for system tests. Every wait has a
// deadline, and what still runs when the cluster goes out of scope is killed.
//
//   Cluster cluster;
//   cluster.StartPlanner();
//   cluster.Register(job);
//   cluster.Submit(job, batches);
//   cluster.StartWorkers(job, {.dataset = prefix});
//   cluster.ExpectAllFinish();
//
// Failures are reported through GoogleTest, with the ends of the logs.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/net/listening.h"
#include "common/process/child_process.h"
#include "penstock/client/planner_client.h"
#include "penstock/v1/planner_service.pb.h"
#include "tests/support/temporary_folder.h"

namespace penstock::testing {

// Where a process runs.
struct Place {
  // What its command line begins with.
  std::vector<std::string> launcher = {};
  // Where others reach it.
  std::string address = "127.0.0.1";
};

struct WorkerSettings {
  std::string dataset = {};
  std::string checkpoint_dir = {};
  bool resume = false;
  std::string gradients_dir = {};
  // By rank; those that are not named are on this host.
  std::vector<Place> places = {};
  // More flags.
  std::vector<std::string> arguments = {};
  // Where a launcher would say the rank; empty: --rank says it.
  std::string rank_variable = {};
};

struct ClusterOptions {
  Place planner = {};
  // As the planner's flag; empty: SQLite in the cluster's folder.
  std::string store = {};
};

// What an iteration came to; equal only where every bit is.
struct Figures {
  uint64_t iteration = 0;
  double loss = 0;
  double norm = 0;
  bool operator==(const Figures&) const = default;
};

class Cluster {
 public:
  static constexpr absl::Duration kDeadline = absl::Seconds(60);

  Cluster() : Cluster(ClusterOptions()) {}
  explicit Cluster(ClusterOptions options) : options_(std::move(options)) {}

  // Again: at the same address and with the same store, after the one before it has ended.
  void StartPlanner();
  // Instead: those at these addresses, which the caller runs.
  void UsePlanners(const std::string& addresses);
  // "host:port", or those of UsePlanners.
  std::string planner_address() const;
  PlannerClient& client() { return *client_; }
  ChildProcess& planner() { return *planner_; }

  void Register(const v1::JobSpec& job);
  // Hands over all batches, waiting for room in the look-ahead window.
  void Submit(const std::string& job_id, const std::vector<v1::Batch>& batches);

  // One for each rank of the job's mesh, which replace those of an earlier call.
  void StartWorkers(const v1::JobSpec& job, const WorkerSettings& settings);
  // One more, which the caller owns; null after a test failure.
  std::unique_ptr<ChildProcess> StartWorker(const v1::JobSpec& job, uint32_t rank,
                                            const WorkerSettings& settings, const std::string& log_path);
  ChildProcess& worker(uint32_t rank) { return *workers_[rank]; }
  // In place of one that has ended.
  void RestartWorker(const v1::JobSpec& job, uint32_t rank, const WorkerSettings& settings);
  size_t size() const { return workers_.size(); }

  // Blocks until all workers of the job are there.
  void WaitUntilRunning(const std::string& job_id);
  // Blocks until the job has completed `iterations` iterations. A failed epoch is a failure of the test,
  // unless the workers join a new one.
  enum class Epochs : uint8_t { kOne, kMany };
  void WaitForIterations(const std::string& job_id, uint64_t iterations, Epochs epochs = Epochs::kOne);
  // Blocks until the checkpoint is complete: it is written while training goes on.
  void WaitForCheckpoint(const std::string& directory, uint64_t next_iteration);
  // Blocks until an epoch later than `epoch` has completed an iteration.
  void WaitForIterationAfterEpoch(const std::string& job_id, uint64_t epoch);
  uint64_t Epoch(const std::string& job_id) { return StatusOf(job_id).epoch(); }
  // Iterations that all ranks have reported.
  uint64_t Completed(const std::string& job_id) { return StatusOf(job_id).completed_iteration(); }
  // Blocks until all workers have ended, and expects status 0.
  void ExpectAllFinish(absl::Duration timeout = kDeadline);
  // The end of a worker within the time; a failure when it still runs.
  ExitStatus ExpectEnd(uint32_t rank, absl::Duration timeout);

  std::string WorkerLog(uint32_t rank) const;
  std::string AllWorkerLogs() const;
  std::string PlannerLog() const;
  // Plan and measurements of an iteration that the planner still holds.
  v1::GetIterationResponse Iteration(const std::string& job_id, uint64_t iteration);
  // Summaries of the completed iterations.
  std::vector<v1::IterationSummary> Summaries(const std::string& job_id);
  std::vector<Figures> FiguresOf(const std::string& job_id);

  const TemporaryFolder& folder() const { return folder_; }

 private:
  v1::JobStatus StatusOf(const std::string& job_id);
  // Lets a moment pass before a condition is looked at again.
  void Tick();
  std::string WorkerLogPath(uint32_t rank) const;

  // First, so that it is removed after the processes have ended.
  TemporaryFolder folder_;
  // Addresses of planners that somebody else runs; empty: planner_.
  std::string planners_;
  std::unique_ptr<ChildProcess> planner_;
  std::unique_ptr<PlannerClient> client_;
  const ClusterOptions options_;
  const int planner_port_ = UnusedPort().value();
  std::vector<std::unique_ptr<ChildProcess>> workers_;
  int generation_ = 0;
};

}  // namespace penstock::testing
