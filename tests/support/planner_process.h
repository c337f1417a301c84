// The real penstock-planner as a process of its own, so that its end and its memory are its alone.
//
//   PENSTOCK_ASSIGN_OR_RETURN(const auto planner, PlannerProcess::Start(PENSTOCK_PLANNER));
//   PlannerClient client(planner->address());
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/process/child_process.h"
#include "tests/support/temporary_folder.h"

namespace penstock {

class PlannerProcess {
 public:
  // Of the program `binary`, on loopback, with its jobs in memory unless `flags`, which are added, name a
  // store. Serves when this returns. Possible errors: those of ChildProcess::Start; DEADLINE_EXCEEDED;
  // FAILED_PRECONDITION (it has ended: with its log).
  static absl::StatusOr<std::unique_ptr<PlannerProcess>> Start(std::string binary,
                                                               std::vector<std::string> flags = {});

  // "127.0.0.1:41234", the same after Restart.
  const std::string& address() const { return address_; }
  // What it has logged.
  std::string Log() const { return folder_.Read("planner.log"); }
  // Resident memory, bytes; 0 when it has ended.
  int64_t ResidentBytes() const;
  bool IsRunning() { return !process_->Poll().has_value(); }
  // Blocks so long, or until it ends: between two looks at something that it does.
  void WaitFor(absl::Duration duration) { process_->WaitFor(duration); }
  // SIGKILL; blocks until the process is gone.
  void Kill();
  // Starts it again after its end, with the same flags and address. As Start.
  absl::Status Restart();
  // SIGTERM; whether it ended with status 0 within `grace`.
  bool Stop(absl::Duration grace) { return process_->Stop(grace).ok(); }

 private:
  PlannerProcess(std::string binary, std::vector<std::string> flags)
      : binary_(std::move(binary)), flags_(std::move(flags)) {}

  const std::string binary_;
  const std::vector<std::string> flags_;
  const TemporaryFolder folder_;
  std::string address_;
  std::unique_ptr<ChildProcess> process_;
};

}  // namespace penstock
