// Fork and exec, with everything that may fail after the fork reported to the parent. The lower half of
// child_process.h, which is what to use.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace penstock {

struct SpawnRequest {
  // Path of the program; arguments include the program's name.
  std::string program = {};
  std::vector<std::string> arguments = {};
  // The whole environment, as NAME=VALUE.
  std::vector<std::string> environment = {};
  // Empty: the parent's.
  std::string working_directory = {};
  // Descriptor that becomes stdin; -1: it is at its end.
  int input = -1;
  // Descriptors that become stdout and stderr; -1: the parent's.
  int output = -1;
  int error = -1;
};

// Returns the id of a child that runs the program: in a process group of its own, with default signal
// handling, and SIGKILL due when the calling thread ends. Possible errors: as
// ChildProcess::Start.
absl::StatusOr<pid_t> Spawn(SpawnRequest request);

// `error` is an errno: NOT_FOUND, PERMISSION_DENIED or UNAVAILABLE with `what` and the system's text.
absl::Status SystemError(int error, const std::string& what);

}  // namespace penstock
