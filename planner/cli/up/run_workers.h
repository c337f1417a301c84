// The workers of a run: how many, on which hosts and GPUs, and the flags that they are started with.
//
//   cluster.StartWorkers(WorkersOf(setup, "127.0.0.1:7070"));
#pragma once

#include <string>

#include "absl/time/time.h"
#include "planner/cli/up/local_cluster.h"
#include "planner/cli/up/run_setup.h"
#include "planner/cli/up/up_options.h"

namespace penstock::cli {

// All that starts them, on the planner of this address. Paths are absolute: a worker on another host has
// another working directory.
LocalWorkerOptions WorkersOf(const RunSetup& setup, const std::string& planner);

// Whether workers that die are started again.
bool IsSupervised(const UpOptions& options);

// What workers take longer that load the libraries of a GPU, which are gigabytes, and start to use it; zero
// of others.
absl::Duration GpuStart(const UpOptions& options);

}  // namespace penstock::cli
