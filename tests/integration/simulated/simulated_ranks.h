// Simulated ranks as threads of one process, connected over loopback: the executor, the trainer and the
// device of a worker, without its processes. Neither protobuf nor LibTorch.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "common/simulation/simulation_options.h"
#include "worker/program/job.h"
#include "worker/program/program.h"
#include "worker/runtime/iteration_result.h"

namespace penstock::worker {

// Of one rank.
struct RankRun {
  // Why it ended before its last iteration.
  absl::Status status;
  std::vector<IterationResult> iterations;
};

// `programs[rank]` are run one after another. The peers of a rank that fails lose their connection to it.
std::vector<RankRun> RunSimulatedRanks(const JobConfig& job,
                                       const std::vector<std::vector<Program>>& programs,
                                       const SimulationOptions& options);

}  // namespace penstock::worker
