#include "planner/cli/up/run_setup.h"

#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/files/files.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "planner/cli/model/base_folder.h"
#include "planner/cli/model/kept_files.h"
#include "planner/cli/up/chosen_share_weights.h"
#include "planner/cli/up/machine.h"
#include "planner/cli/up/proposed_strategies.h"

namespace penstock::cli {
namespace {

// Of the memory that is available, what the ranks may plan with.
constexpr double kMemoryShare = 0.8;

// Of the tasks of a mixture: all of them.
std::string NameOfData(const UpOptions& options) {
  if (options.mix.empty()) {
    const std::string& path = options.dataset.empty() ? options.lengths : options.dataset;
    return std::filesystem::path(path).filename().string();
  }
  return absl::StrJoin(options.mix, "-", [](std::string* name, const MixtureTask& task) {
    absl::StrAppend(name, task.dataset.name);
  });
}

std::string DefaultJobId(std::string id) {
  for (char& c : id) {
    if (!absl::ascii_isalnum(c) && c != '-' && c != '_' && c != '.') c = '-';
  }
  return absl::StrCat(id.substr(0, 64), "-",
                      absl::FormatTime("%Y%m%d-%H%M%S", absl::Now(), absl::LocalTimeZone()));
}

void NameWhatHasNoName(UpOptions* options) {
  if (options->job_id.empty()) options->job_id = DefaultJobId(NameOfData(*options));
  if (options->run_dir.empty()) options->run_dir = absl::StrCat(kRunsFolder, "/", options->job_id);
}

// A run that begins anew removes the checkpoints of its folder.
absl::Status CheckInitialModelStays(const UpOptions& options) {
  if (options.init_from.empty() || options.resume) return absl::OkStatus();
  std::error_code ignored;
  if (!std::filesystem::equivalent(options.init_from, options.run_dir, ignored)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--init-from: '", options.init_from,
                                                 "' is the folder of --run-dir; name another one there"));
}

// What workers begin with: the checkpoint's folder; none where they go on from one of the run. Beside
// adapters the run keeps all else, so that it goes on whatever becomes of what it began with.
absl::Status FindInitialValues(const v1::ModelSpec& model, UpOptions* options) {
  const bool adapted = model.has_adapters() && !IsSimulated(*options);
  if (adapted) options->base = std::filesystem::absolute(BaseFolder(options->run_dir)).string();
  if (options->resume) options->init_from.clear();
  if (options->resume && adapted && !std::filesystem::exists(options->base)) {
    return absl::NotFoundError(absl::StrCat("--resume: '", options->base,
                                            "' is not there, which has what the adapters leave as it is"));
  }
  if (!options->resume && !adapted) PENSTOCK_RETURN_IF_ERROR(DropBase(options->run_dir));
  if (options->init_from.empty()) return absl::OkStatus();
  PENSTOCK_ASSIGN_OR_RETURN(const ModelFolder folder, OpenInitialModel(*options));
  options->init_from = std::filesystem::absolute(folder.checkpoint).string();
  if (!adapted) return absl::OkStatus();
  PENSTOCK_RETURN_IF_ERROR(KeepBase(folder.base.empty() ? folder.checkpoint : folder.base, options->run_dir));
  // New adapters are drawn by the seed.
  if (folder.base.empty()) options->init_from.clear();
  return absl::OkStatus();
}

// For the export of the run. A run that goes on has it.
absl::Status KeepWhatTheModelCameWith(const UpOptions& options) {
  if (options.resume) return absl::OkStatus();
  if (!options.init_from.empty()) return KeepFilesOf(options.init_from, options.run_dir);
  // Of an earlier run in this folder.
  PENSTOCK_RETURN_IF_ERROR(DropKeptFiles(options.run_dir));
  if (options.model.empty()) return absl::OkStatus();
  std::error_code ignored;
  if (std::filesystem::is_directory(options.model, ignored))
    return KeepFiles(options.model, options.run_dir).status();
  PENSTOCK_ASSIGN_OR_RETURN(const std::string config, ReadFile(options.model));
  return WriteFileAtomically(KeptFile(options.run_dir, "config.json"), config);
}

absl::StatusOr<RunFolder> MakeFolder(const UpOptions& options, const RunData& data, const v1::JobSpec& job,
                                     const RunSetupTools& tools) {
  RunRecord record;
  record.flags = options.flags;
  record.job = job;
  record.job.clear_profile();
  PENSTOCK_ASSIGN_OR_RETURN(record.data, data.Describe(options, job.model().architecture()));
  return PrepareRunFolder({.path = options.run_dir,
                           .resume = options.resume,
                           .fresh = options.fresh,
                           .allowed_changes = options.allowed_changes,
                           .kept_checkpoints = options.kept_checkpoints,
                           .say = tools.say},
                          record);
}

// Better now than after the training.
absl::Status CheckTracePath(const UpOptions& options) {
  if (options.trace.empty()) return absl::OkStatus();
  return AnnotateError(CheckWritable(options.trace), "--trace");
}

// An equal share of what this machine has left; hosts are taken to be like it.
absl::StatusOr<int64_t> MemoryOfOneWorker(const UpOptions& options) {
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t available, AvailableMemoryBytes());
  return static_cast<int64_t>(kMemoryShare * static_cast<double>(available)) / WorkersOfOneMachine(options);
}

absl::Status AddMemoryLimit(const UpOptions& options, v1::JobSpec* job) {
  if (job->planning().memory_limit_bytes() != 0 || IsSimulated(options)) return absl::OkStatus();
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t bytes, MemoryOfOneWorker(options));
  job->mutable_planning()->set_memory_limit_bytes(bytes);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RunSetup> SetUpRun(UpOptions options, const RunSetupTools& tools) {
  PENSTOCK_RETURN_IF_ERROR(CheckDevice(options));
  PENSTOCK_RETURN_IF_ERROR(FindHosts(&options));
  PENSTOCK_RETURN_IF_ERROR(FindGpus(&options));
  PENSTOCK_ASSIGN_OR_RETURN(RunData data, RunData::Open(options));
  NameWhatHasNoName(&options);
  PENSTOCK_RETURN_IF_ERROR(CheckTracePath(options));
  PENSTOCK_RETURN_IF_ERROR(CheckInitialModelStays(options));
  PENSTOCK_ASSIGN_OR_RETURN(const GivenParts given, ReadGivenParts(options, tools));
  if (given.model.has_value()) LimitLengthsTo(*given.model, &options);
  PENSTOCK_RETURN_IF_ERROR(CountIterations(data, given, &options));
  PENSTOCK_ASSIGN_OR_RETURN(v1::JobSpec job, MakeJob(options, data, given, tools));
  PENSTOCK_ASSIGN_OR_RETURN(RunFolder folder, MakeFolder(options, data, job, tools));
  job.set_first_iteration(folder.first_iteration);
  if (job.first_iteration() >= options.iterations) {
    return absl::InvalidArgumentError(absl::StrCat("--iterations ", options.iterations,
                                                   ": the checkpoint is already at ", job.first_iteration(),
                                                   "; ask for more"));
  }
  PENSTOCK_RETURN_IF_ERROR(KeepWhatTheModelCameWith(options));
  PENSTOCK_RETURN_IF_ERROR(FindInitialValues(job.model(), &options));
  PENSTOCK_RETURN_IF_ERROR(AddProfile(options, given.profile, tools, &job));
  PENSTOCK_RETURN_IF_ERROR(AddMemoryLimit(options, &job));
  options.planning.rank_memory.UseLeastOf(&job);
  PENSTOCK_RETURN_IF_ERROR(AddProposedStrategies(options, data, tools, &job));
  PENSTOCK_RETURN_IF_ERROR(AddChosenShareWeights(options, data, tools, &job));
  return RunSetup{std::move(options), std::move(data), std::move(job), std::move(folder)};
}

}  // namespace penstock::cli
