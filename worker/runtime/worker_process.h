// One rank from start to end: the composition of everything in worker/.
#pragma once

#include "absl/status/status.h"
#include "worker/runtime/shutdown.h"
#include "worker/runtime/worker_options.h"

namespace penstock::worker {

// Registers, joins the other ranks, trains until the job is finished; when another rank is lost, again from
// the newest checkpoint (--max-rejoins). Blocks. `shutdown` is disarmed when it returns. Possible errors: why
// the worker ended before the job was finished; names the rank to blame where one is.
absl::Status RunWorker(const RunOptions& options, Shutdown& shutdown);

}  // namespace penstock::worker
