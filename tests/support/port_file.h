// The ports that a planner serves, from the file of its --port-file.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/process/child_process.h"

namespace penstock {

// 0: not served.
struct ServedPorts {
  int planner = 0;
  int metrics = 0;
  int health = 0;
  int page = 0;
};

// Waits until `planner`, which was started with `--port-file path` where no file was, serves.
// Possible errors: FAILED_PRECONDITION (it has ended), DEADLINE_EXCEEDED, DATA_LOSS (the file names no
// port of the planner).
absl::StatusOr<ServedPorts> AwaitPorts(ChildProcess& planner, const std::string& path,
                                       absl::Duration patience = absl::Seconds(30));

}  // namespace penstock
