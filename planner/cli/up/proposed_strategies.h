// --strategies auto: the strategies of a run, proposed for the first of its batches.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "penstock/v1/job.pb.h"
#include "planner/cli/up/job_setup.h"
#include "planner/cli/up/run_data.h"
#include "planner/cli/up/up_options.h"

namespace penstock::cli {

bool ProposesStrategies(const UpOptions& options);

// Tensor degrees that meshes of so many ranks may have, powers of two; ascending.
std::vector<uint32_t> TensorDegreesFor(const v1::ModelSpec& model, uint32_t ranks);

// Where they are to be proposed; says what they are and what they gain. `job` has its costs and its limit of
// memory; of the meshes that can hold the batches, the one that is best alone becomes its mesh. Possible
// errors: those of ProposePool.
absl::Status AddProposedStrategies(const UpOptions& options, const RunData& data, const RunSetupTools& tools,
                                   v1::JobSpec* job);

}  // namespace penstock::cli
