// A connection over TCP on which nothing blocks for longer than it may.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/process/file_descriptor.h"

namespace penstock::worker {

// The looking up of a name is not bounded.
// Possible errors, of all: UNAVAILABLE (says what went wrong).
absl::StatusOr<FileDescriptor> ConnectTo(const std::string& host, uint16_t port, absl::Time deadline);
absl::Status SendAll(int socket, absl::string_view bytes, absl::Time deadline);
// Exactly so many bytes.
absl::StatusOr<std::string> Receive(int socket, size_t count, absl::Time deadline);

}  // namespace penstock::worker
