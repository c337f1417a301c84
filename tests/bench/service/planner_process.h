// The real penstock-planner as a process of its own, with a fresh store, so that its memory and threads are
// its alone.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/process/child_process.h"
#include "tests/support/postgres_server.h"
#include "tests/support/temporary_folder.h"

namespace penstock::bench {

class PlannerProcess {
 public:
  // `store`: memory, sqlite or postgres, which is a new file or a new server. `flags` are added to the
  // planner's. Serves when this returns. Possible errors: those of ChildProcess::Start and
  // PostgresServer::Start; DEADLINE_EXCEEDED; FAILED_PRECONDITION (it has ended).
  static absl::StatusOr<std::unique_ptr<PlannerProcess>> Start(const std::string& store,
                                                               std::vector<std::string> flags = {});

  // "127.0.0.1:41234", the same after Restart.
  const std::string& address() const { return address_; }
  // Resident memory, bytes; 0 when it has ended.
  int64_t ResidentBytes() const;
  // What the store takes on the disk now, bytes.
  int64_t StoreBytes() const;
  bool IsRunning() { return !process_->Poll().has_value(); }

  // SIGKILL; blocks until the process is gone.
  void Kill();
  // Starts it again with the same store and address, and returns when it serves.
  absl::Status Restart();

 private:
  PlannerProcess(std::string store, std::vector<std::string> flags)
      : store_(std::move(store)), flags_(std::move(flags)) {}
  std::string StoreUrl() const;

  // Where the store is one.
  std::unique_ptr<PostgresServer> server_;
  std::string database_;
  const std::string store_;
  const std::vector<std::string> flags_;
  const TemporaryFolder folder_;
  std::string address_ = "127.0.0.1:0";
  std::unique_ptr<ChildProcess> process_;
};

}  // namespace penstock::bench
