// Whether a program goes with where the job keeps its parameters. Private to this folder.
#pragma once

#include "absl/status/status.h"
#include "worker/program/job.h"
#include "worker/program/program.h"

namespace penstock::worker {

// With shares of parameters: one RESHARD brings the parameters, before everything else, one takes the
// gradients, behind the last pass and before OPTIMIZER_STEP, both over all ranks as OPTIMIZER_STEP is, and
// nothing else reduces gradients. Without: none. `job` is that of the program's strategy. Possible errors:
// INVALID_ARGUMENT (names the instruction).
absl::Status CheckReshards(const Program& program, const JobConfig& job);

}  // namespace penstock::worker
