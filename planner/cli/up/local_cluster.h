// The processes of a local run: a planner (unless one runs elsewhere) and one worker for each rank.
//
//   auto cluster = LocalCluster({.bin_dir = ..., .log_dir = ...});
//   PENSTOCK_ASSIGN_OR_RETURN(std::string address, cluster.StartPlanner(metrics, absl::Seconds(10)));
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

struct LocalWorkerOptions {
  std::string planner_address;
  std::string job_id;
  uint32_t workers = 1;
  uint32_t threads = 1;
  std::string dataset;
  std::string checkpoint_dir;
  bool resume = false;
  // More flags of penstock-worker.
  std::vector<std::string> arguments = {};
};

class LocalCluster {
 public:
  // Ending an iteration takes a worker a moment; what hangs is not worth more.
  static constexpr absl::Duration kStopGrace = absl::Seconds(3);

  explicit LocalCluster(LocalClusterOptions options) : options_(std::move(options)) {}

  // Starts a planner on a free port and returns its "host:port" once it serves. `metrics_listen` may be
  // empty. Possible errors: UNAVAILABLE (it ended, or did not serve in time; names its log), those of
  // ChildProcess::Start.
  absl::StatusOr<std::string> StartPlanner(const std::string& metrics_listen, absl::Duration deadline);

  // Possible errors: those of ChildProcess::Start.
  absl::Status StartWorkers(const LocalWorkerOptions& options);

  // The first process that ended badly, by name, with its end and the last lines of its log. OK while all is
  // well.
  absl::Status Check();
  // True when every worker has ended.
  bool WorkersEnded();
  bool IsRunning(uint32_t rank);
  // "worker-1, worker-3".
  std::string NamesOfRunningWorkers();

  // SIGTERM to the workers, and SIGKILL to those that still run after `grace`; then the same with the
  // planner. Blocks for at most twice `grace`.
  void Stop(absl::Duration grace = kStopGrace);

 private:
  struct Member {
    std::string name;
    std::string log;
    std::unique_ptr<ChildProcess> process;
  };

  absl::StatusOr<Member> Start(const std::string& name, const std::vector<std::string>& arguments);

  LocalClusterOptions options_;
  std::optional<Member> planner_;
  std::vector<Member> workers_;
};

}  // namespace penstock::cli
