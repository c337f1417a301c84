// The ranks of a job as threads of this process: for thousands of small jobs, where to start processes that
// load LibTorch takes longer than the jobs themselves.
//
//   PrepareForWorkerThreads();
//   worker::RunOptions options;
//   options.planner = address;
//   ...
//   std::vector<absl::Status> ends = RunWorkerThreads(options, /*ranks=*/4);
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "worker/runtime/worker_options.h"

namespace penstock::testing {

// Before there are tensors or threads; once more does nothing.
void PrepareForWorkerThreads();

// Runs the ranks 0 to `ranks` - 1 until all have ended, and returns how, by rank. `options` are those of
// every rank; its time-outs bound each wait.
std::vector<absl::Status> RunWorkerThreads(const worker::RunOptions& options, uint32_t ranks);

}  // namespace penstock::testing
