// A planner process with a fresh store of a kind: what the scenarios measure.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/support/planner_process.h"
#include "tests/support/postgres_server.h"
#include "tests/support/temporary_folder.h"

namespace penstock::bench {

class StoredPlanner {
 public:
  // `store`: memory, sqlite (a new file) or postgres (a new server, that waits for its disk). `flags` are
  // added to the planner's. Possible errors: those of PlannerProcess::Start and PostgresServer::Start;
  // INVALID_ARGUMENT (no such store).
  static absl::StatusOr<std::unique_ptr<StoredPlanner>> Start(const std::string& store,
                                                              std::vector<std::string> flags = {});

  PlannerProcess& process() { return *process_; }
  const std::string& address() const { return process_->address(); }
  // What the store takes on the disk now, bytes.
  int64_t StoreBytes() const;

 private:
  StoredPlanner() = default;
  // The value of --store.
  absl::StatusOr<std::string> MakeStore(const std::string& store);

  const TemporaryFolder folder_;
  // Where the store is one.
  std::unique_ptr<PostgresServer> server_;
  std::string database_;
  std::unique_ptr<PlannerProcess> process_;
};

}  // namespace penstock::bench
