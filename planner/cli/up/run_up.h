// `penstock up`: from flags to a finished training run.
#pragma once

#include "absl/status/status.h"
#include "planner/cli/up/up_options.h"

namespace penstock::cli {

// Measures or reads the cost profile, starts planner and workers, feeds batches, shows progress on stdout and
// ends with the summary. Blocks until the job is finished, a process fails, or SIGINT or SIGTERM comes;
// leaves no process behind. Possible errors: INVALID_ARGUMENT, NOT_FOUND, ALREADY_EXISTS (a flag; the message
// names it), CANCELLED (a signal); others when the work failed (the message names the rank or process).
absl::Status RunUp(UpOptions options);

}  // namespace penstock::cli
