// --share-weights auto: the weights of a run's shares, chosen for the first of its batches.
#pragma once

#include "absl/status/status.h"
#include "penstock/v1/job.pb.h"
#include "planner/cli/up/job_setup.h"
#include "planner/cli/up/run_data.h"
#include "planner/cli/up/up_options.h"

namespace penstock::cli {

// Where they are to be chosen; says what they are and what they gain. `job` has its costs, its limit of
// memory and its strategies. Possible errors: those of core::ChooseShareWeights, in words of the flags.
absl::Status AddChosenShareWeights(const UpOptions& options, const RunData& data, const RunSetupTools& tools,
                                   v1::JobSpec* job);

}  // namespace penstock::cli
