// One rank from start to end: the composition of everything in worker/.
//
//   PrepareProcess();                                      // first thing in main, once
//   const absl::Status status = RunWorker(options, shutdown);
//
// Ranks may share a process, each with a thread and a Shutdown of its own: what they report as their peak of
// memory is then that of all of them, and one that does not end in time takes the others along.
#pragma once

#include "absl/status/status.h"
#include "worker/runtime/shutdown.h"
#include "worker/runtime/worker_options.h"

namespace penstock::worker {

// What belongs to a process and not to a rank: tensors on the CPU are counted, and LibTorch runs one
// operation at a time. Call it once, before there are tensors or threads.
void PrepareProcess();

// Registers, joins the other ranks, trains until the job is finished; when another rank is lost, again from
// the newest checkpoint (--max-rejoins). Blocks. `shutdown` is disarmed when it returns. Possible errors: why
// the worker ended before the job was finished; names the rank to blame where one is.
absl::Status RunWorker(const RunOptions& options, Shutdown& shutdown);

}  // namespace penstock::worker
