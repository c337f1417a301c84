// What a run is made of, found before any process starts: data, model, cost profile, folder.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "penstock/v1/job.pb.h"
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

// What setting up needs of the program.
struct RunSetupTools {
  // Where penstock-planner and penstock-worker are.
  std::string bin_dir;
  // Tells the user.
  std::function<void(const std::string&)> say;
  // Waits at most so long for a request to stop; true when there is one.
  std::function<bool(absl::Duration)> stopped;
};

// Blocks while a cost profile is measured, where the cache has none. Possible errors: INVALID_ARGUMENT,
// NOT_FOUND, OUT_OF_RANGE (a flag or a file; named), those of PrepareRunFolder and MeasureOrReadProfile.
absl::StatusOr<RunSetup> SetUpRun(UpOptions options, const RunSetupTools& tools);

// After so long without a sign of life the planner takes a worker of the job for lost.
absl::Duration HeartbeatTimeoutOf(const v1::JobSpec& job);

// What many workers on few cores need longer for whatever they wait for of each other.
absl::Duration Crowding(const UpOptions& options);

}  // namespace penstock::cli
