// Keeps the processes of a local run going: starts again what died, and ends what hangs so that it can be.
//
//   Supervisor supervisor(cluster, client, {.job_id = ..., .max_restarts = 10, .say = ...});
//   ... every 50 ms or so: PENSTOCK_RETURN_IF_ERROR(supervisor.Step({.job = ..., ...}, absl::Now()));
//
// Healthy workers go on by themselves (worker/runtime/rejoin.h): a planner has the address and the store of
// the one before it, a worker begins with the newest checkpoint. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "penstock/client/planner_client.h"
#include "penstock/v1/planner_service.pb.h"
#include "planner/cli/up/local_cluster.h"
#include "planner/cli/up/restart_policy.h"

namespace penstock::cli {

struct SupervisorOptions {
  std::string job_id;
  uint32_t max_restarts = 0;
  // The planner takes a worker for lost after so long.
  absl::Duration heartbeat_timeout;
  // A worker may take so long to register for a new epoch.
  absl::Duration join_timeout;
  // The planner may take so long to answer.
  absl::Duration planner_timeout;
  // Tells the user.
  std::function<void(const std::string&)> say;
};

// What the planner has said last.
struct RunView {
  v1::JobStatus job;
  // For how long it has not answered.
  absl::Duration silence;
  // The highest iteration that was ever completed.
  uint64_t furthest = 0;
};

class Supervisor {
 public:
  // Both must outlive this object.
  Supervisor(LocalCluster& cluster, PlannerClient& client, SupervisorOptions options)
      : cluster_(cluster), client_(client), options_(std::move(options)), policy_(options_.max_restarts) {}

  // Looks at all processes. Blocks for a second at most. Possible errors: what ended for good and why it is
  // not started again; those of LocalCluster::Restart.
  absl::Status Step(const RunView& view, absl::Time now);

  // The worker that a Step has given up: it died too often, or died and cannot be started any more. Nothing
  // where something else ended the run.
  std::optional<uint32_t> given_up() const { return given_up_; }

  // A process is to be started again, in one of the next steps.
  bool restarts() const { return !due_.empty(); }

 private:
  absl::Status TakeDeaths(const RunView& view, absl::Time now);
  absl::Status RestartWhatIsDue(absl::Time now);
  // Has the epoch of a dead worker fail now, and not when its silence is noticed.
  // False: the planner cannot be told now.
  bool TellPlanner(const EndedProcess& ended, const v1::JobStatus& job);
  void KillWhatHangs(const RunView& view, absl::Time now);
  // Silent for so long that the planner took it for lost, while others are heard of.
  bool WasLost(const v1::WorkerStatus& worker, const v1::JobStatus& job) const;
  // Whether a worker has been missing in the epoch that forms for too long.
  bool IsMissing(uint32_t rank, const v1::JobStatus& job, absl::Time now);
  void Kill(uint32_t rank, const std::string& why);

  LocalCluster& cluster_;
  PlannerClient& client_;
  const SupervisorOptions options_;
  RestartPolicy policy_;
  uint64_t furthest_ = 0;
  std::optional<uint32_t> given_up_;
  // When the planner was last ended or started again: it has as long as ever to answer from then on.
  absl::Time planner_begun_ = absl::InfinitePast();
  // Of processes that are to be started again, by name.
  std::map<std::string, absl::Time> due_;
  // By rank: since when it has been missing.
  std::map<uint32_t, absl::Time> missing_;
};

}  // namespace penstock::cli
