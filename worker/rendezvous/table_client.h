// A connection to the table of an epoch (table_server.h), both ends of which have shown that they have the
// epoch's secret.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/process/file_descriptor.h"
#include "common/sync/sync.h"
#include "worker/rendezvous/messages.h"

namespace penstock::worker {

struct TableAddress {
  std::string host;
  uint16_t port = 0;
};

// Thread-safe: calls take turns.
class TableClient {
 public:
  // Blocks for at most `timeout`, and tries again meanwhile where nobody answers or the connection is lost.
  // Possible errors: UNAVAILABLE (names the address).
  static absl::StatusOr<std::unique_ptr<TableClient>> Connect(const TableAddress& address,
                                                              const std::string& secret,
                                                              absl::Duration timeout);

  // Blocks until the table has answered, for at most `timeout` after the calls before it; a request to wait
  // is given its own time as well. Possible errors: INVALID_ARGUMENT (too long), UNAVAILABLE (no answer;
  // later calls fail, too).
  absl::StatusOr<TableAnswer> Call(const TableRequest& request, absl::Duration timeout);

 private:
  explicit TableClient(FileDescriptor socket) : socket_(std::move(socket)) {}

  absl::StatusOr<TableAnswer> Exchange(const std::string& message, absl::Time deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  // None after a failure.
  FileDescriptor socket_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace penstock::worker
