// The processes of a run: a planner (unless one runs elsewhere) and one worker for each rank, on this machine
// or, over ssh, on others.
//
//   auto cluster = LocalCluster({.bin_dir = ..., .log_dir = ...});
//   PENSTOCK_ASSIGN_OR_RETURN(std::string address, cluster.StartPlanner({.store = "sqlite:..."}));
//   PENSTOCK_RETURN_IF_ERROR(cluster.StartWorkers(worker_options));
//   ... until cluster.WorkersEnded() ...
//   cluster.Stop();
//
// Not thread-safe. Whatever is still running when it goes out of scope is killed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/process/child_process.h"

namespace penstock::cli {

struct LocalClusterOptions {
  // Where penstock-planner and penstock-worker are.
  std::string bin_dir;
  // One log file for each process.
  std::string log_dir;
};

struct LocalPlannerOptions {
  // Of penstock-planner's --store.
  std::string store = "memory";
  // "host:port"; empty: none.
  std::string metrics_listen = {};
  // The same, of the page for browsers.
  std::string page_listen = {};
  // "host:port" of a collector of OpenTelemetry; empty: none.
  std::string otlp_endpoint = {};
  // Of penstock-planner's --simulated-profile; empty: none.
  std::string simulated_profile = {};
  // How long it may take to serve.
  absl::Duration deadline = absl::Seconds(10);
};

struct LocalWorkerOptions {
  std::string planner_address;
  std::string job_id;
  uint32_t workers = 1;
  uint32_t threads = 1;
  std::string dataset;
  std::string checkpoint_dir;
  bool resume = false;
  // "host:port" of the metrics of rank 0; those of rank r at port + r. Empty: none.
  std::string metrics_listen = {};
  // More flags of penstock-worker.
  std::vector<std::string> arguments = {};
  // The GPU of each rank; empty: as `arguments` say, or on CPU.
  std::vector<uint32_t> gpus = {};
  // By rank; empty: all on this machine. Programs and files are there where they are here, and a worker is an
  // ssh here.
  std::vector<std::string> hosts = {};
  // The program, and flags of its own.
  std::vector<std::string> ssh = {"ssh"};
};

// A process that ended with an error.
struct EndedProcess {
  // "planner", "worker-2".
  std::string name;
  // Of a worker.
  std::optional<uint32_t> rank;
  // "killed by signal 9 (Killed)".
  std::string how;
  // False where it said that it would end the same (exit status 2).
  bool worth_restarting = true;
};

class LocalCluster {
 public:
  // Ending an iteration takes a worker a moment; what hangs is not worth more.
  static constexpr absl::Duration kStopGrace = absl::Seconds(3);

  explicit LocalCluster(LocalClusterOptions options) : options_(std::move(options)) {}

  // Starts a planner on a free port and returns its "host:port" once it serves. Possible errors: UNAVAILABLE
  // (it ended, or did not serve in time; names its log), those of UnusedPort and of ChildProcess::Start.
  absl::StatusOr<std::string> StartPlanner(const LocalPlannerOptions& options);

  // "http://127.0.0.1:41234/", of the planner that was started; empty: it serves none.
  const std::string& page() const { return page_; }

  // Possible errors: those of ChildProcess::Start.
  absl::Status StartWorkers(const LocalWorkerOptions& options);
  // How a worker is started, as one would type it.
  std::string DescribeWorker(const LocalWorkerOptions& options, uint32_t rank) const;

  // The first process that ended badly, by name, with its end and the last lines of its log. OK while all is
  // well.
  absl::Status Check();
  // All processes that ended badly and were not started again.
  std::vector<EndedProcess> Ended();
  // Starts a process of that name anew after its end: a planner at the same address, a worker with --resume.
  // Does not wait until it serves. Possible errors: those of ChildProcess::Start.
  absl::Status Restart(const std::string& name);
  // SIGKILL; false when it does not run.
  bool KillPlanner();
  bool KillWorker(uint32_t rank);
  size_t workers() const { return workers_.size(); }
  // For poll(2): one of them is readable when a process has ended that Check and Ended have not seen yet.
  std::vector<int> EndDescriptors();
  // True when every worker has ended.
  bool WorkersEnded();
  bool IsRunning(uint32_t rank);
  // By which the rank's process, that of the last start, speaks to the planner where it shows this digest
  // (common/secret/incarnation.h); nothing: it is another process's.
  std::optional<uint64_t> IncarnationOf(uint32_t rank, uint64_t digest) const;
  // "worker-1, worker-3".
  std::string NamesOfRunningWorkers();

  // SIGTERM to the workers, which then end by themselves. Does not block.
  void AskWorkersToStop();

  // SIGTERM to the workers, and SIGKILL to those that still run after `grace`; then the same with the
  // planner. Blocks for at most twice `grace`.
  void Stop(absl::Duration grace = kStopGrace);

 private:
  struct Member {
    std::string name;
    std::string log;
    // To start it again with.
    std::vector<std::string> arguments;
    // It runs on another host.
    bool remote = false;
    bool is_worker = false;
    // Of a worker: what its incarnations are made from, another one each time it starts.
    std::string incarnation_key = {};
    std::unique_ptr<ChildProcess> process;
  };

  absl::Status Start(Member& member);

  // The whole command line.
  std::vector<std::string> WorkerCommand(const LocalWorkerOptions& options, uint32_t rank, bool resume) const;

  // Members in the order of blame: the planner, then the workers.
  std::vector<Member*> Members();

  LocalClusterOptions options_;
  std::optional<Member> planner_;
  std::string page_;
  std::vector<Member> workers_;
};

}  // namespace penstock::cli
