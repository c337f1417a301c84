// The worker's side of the planner service: registers, keeps itself alive, reads programs ahead and sends
// reports, each on a thread of its own, so that the thread that trains never waits for the network unless
// there is nothing to do.
//
//   PENSTOCK_ASSIGN_OR_RETURN(auto agent, PlannerAgent::Register({.planner = "host:7070", .job_id = "gpt"}));
//   agent->SetFailureListener([&](const absl::Status& why) { communicator->Abort(why.ToString()); });
//   PENSTOCK_ASSIGN_OR_RETURN(Rendezvous peers, agent->WaitUntilReady(absl::Seconds(60)));
//   agent->StartPrograms(agent->registration().job.first_iteration);
//
// A planner that is gone is tried again for `planner_timeout`, with growing pauses; after that, and when the
// epoch fails, every call returns the failure and the listener is told once. What its code says:
//
//   UNAVAILABLE, CANCELLED, ABORTED   the epoch is over: another rank failed, or a newer epoch has begun
//   DEADLINE_EXCEEDED                 the planner does not answer
//   any other                         this worker cannot go on
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "penstock/client/security.h"
#include "worker/agent/control_plane.h"

namespace penstock::worker {

struct AgentOptions {
  // "host:port".
  std::string planner = {};
  ClientSecurity security = {};
  std::string job_id = {};
  // Where other workers reach this one.
  std::string host = "127.0.0.1";
  // The wanted rank; none: any.
  std::optional<uint32_t> rank = {};
  // Random, not 0, new for each registration.
  uint64_t incarnation = 0;
  // The iteration that this worker's checkpoint continues with; 0 without one.
  uint64_t first_iteration = 0;
  // How long the planner may be silent.
  absl::Duration planner_timeout = absl::Seconds(60);
  // How long a rank may be taken: until the planner has noticed that who held it is gone.
  absl::Duration taken_timeout = absl::ZeroDuration();
  // Waits during Register. An error ends it with that error. None: sleeps.
  std::function<absl::Status(absl::Duration)> wait = {};
};

class PlannerAgent : public ControlPlane {
 public:
  // Called once, from a thread of the agent, when the epoch has failed for this worker. Must not call the
  // agent.
  using FailureListener = std::function<void(const absl::Status&)>;

  // Gets a rank; tries again for `planner_timeout` while the planner or the job is not there yet, and for
  // `taken_timeout` while another worker holds the rank.
  // Possible errors: those of RegisterWorker; DEADLINE_EXCEEDED (no planner); INVALID_ARGUMENT and
  // UNIMPLEMENTED (a job that this worker cannot run); those of `wait`.
  static absl::StatusOr<std::unique_ptr<PlannerAgent>> Register(const AgentOptions& options);

  // A listener set after the failure is called at once.
  virtual void SetFailureListener(FailureListener listener) = 0;

  // Ends all waiting with `reason`. Any thread.
  virtual void Stop(const absl::Status& reason) = 0;

  // After the failure of the epoch: says from now on that this worker is still here, until this object goes
  // away.
  virtual void Linger() = 0;
  // After the failure of the epoch, until another one begins. Sends the reports that it has held up; blocks
  // for `timeout` at most. Possible errors: DEADLINE_EXCEEDED, those of ReportIteration.
  virtual absl::Status SendLeftReports(absl::Duration timeout) = 0;
  // The first iteration that not all ranks have reported. Blocks for a call. Possible errors: ABORTED
  // (another epoch has begun), those of GetJob.
  virtual absl::StatusOr<uint64_t> Completed() = 0;
};

}  // namespace penstock::worker
