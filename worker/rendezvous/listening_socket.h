// A socket that listens on one address of this machine, for libraries that would listen on all.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "common/process/file_descriptor.h"

namespace penstock::worker {

struct ListeningSocket {
  FileDescriptor descriptor;
  uint16_t port = 0;
};

// `host`: a name or an address of this machine. Picks a free port. Blocks while the name is looked up.
// Possible errors: UNAVAILABLE (names the host).
absl::StatusOr<ListeningSocket> ListenOn(const std::string& host);

}  // namespace penstock::worker
