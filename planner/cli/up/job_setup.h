// The job that flags describe: its model, its data's typical batch, its costs. `penstock up` runs it,
// `penstock feed` hands it to a planner.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "penstock/v1/job.pb.h"
#include "planner/cli/model/model_folder.h"
#include "planner/cli/up/run_data.h"
#include "planner/cli/up/up_options.h"

namespace penstock::cli {

// What setting up needs of the program.
struct RunSetupTools {
  // Where penstock-planner and penstock-worker are.
  std::string bin_dir;
  // Tells the user.
  std::function<void(const std::string&)> say;
  // Waits at most so long for a request to stop; true when there is one.
  std::function<bool(absl::Duration)> stopped;
};

// What flags give as a whole, in files.
struct GivenParts {
  // --profile
  std::optional<v1::ProfileFile> profile;
  // --model, --init-from; not with simulated devices.
  std::optional<v1::ModelSpec> model;
};

// Possible errors: those of ReadProfileFile, ReadHuggingFaceConfig and OpenModelFolder, naming the flag.
absl::StatusOr<GivenParts> ReadGivenParts(const UpOptions& options, const RunSetupTools& tools);

// With --epochs: as many iterations as pass so often through the samples that the limits of length leave.
// LimitLengthsTo was called. Possible errors: INVALID_ARGUMENT (names --epochs), those of
// RunData::SummarizeCut.
absl::Status CountIterations(const RunData& data, const GivenParts& given, UpOptions* options);

// The job without its cost profile and first iteration. LimitLengthsTo and CountIterations were called.
// Possible errors: INVALID_ARGUMENT, NOT_FOUND (a flag or a file; named).
absl::StatusOr<v1::JobSpec> MakeJob(const UpOptions& options, const RunData& data, const GivenParts& given,
                                    const RunSetupTools& tools);

// `profile`, or where there is none that of this machine (or of its GPUs), for which it blocks while it is
// measured. With AddMemoryLimitOfGpus. Possible
// errors: those of MeasureOrReadProfile.
absl::Status AddProfile(const UpOptions& options, const std::optional<v1::ProfileFile>& profile,
                        const RunSetupTools& tools, v1::JobSpec* job);

// On GPUs, where no limit was asked for: a share of the GPU's memory, which is that of the job's cost
// profile.
void AddMemoryLimitOfGpus(const UpOptions& options, v1::JobSpec* job);

// What --init-from names. Possible errors: those of OpenModelFolder, naming the flag.
absl::StatusOr<ModelFolder> OpenInitialModel(const UpOptions& options);

// After so long without a sign of life the planner takes a worker of the job for lost.
absl::Duration HeartbeatTimeoutOf(const v1::JobSpec& job);

// What many workers on few cores need longer for whatever they wait for of each other.
absl::Duration Crowding(const UpOptions& options);

}  // namespace penstock::cli
