// What a run is made of, found before any process starts: data, model, cost profile, folder.
#pragma once

#include "absl/status/statusor.h"
#include "penstock/v1/job.pb.h"
#include "planner/cli/up/job_setup.h"
#include "planner/cli/up/run_data.h"
#include "planner/cli/up/run_folder.h"
#include "planner/cli/up/up_options.h"

namespace penstock::cli {

struct RunSetup {
  // With names for the job and the folder where none were given.
  UpOptions options;
  RunData data;
  // With its cost profile and its first iteration.
  v1::JobSpec job;
  RunFolder folder;
};

// Blocks while a cost profile is measured, where the cache has none. Possible errors: INVALID_ARGUMENT,
// NOT_FOUND, OUT_OF_RANGE (a flag or a file; named), those of PrepareRunFolder and MeasureOrReadProfile.
absl::StatusOr<RunSetup> SetUpRun(UpOptions options, const RunSetupTools& tools);

}  // namespace penstock::cli
