#include "planner/cli/up/run_setup.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/files/files.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "planner/cli/model/hugging_face_config.h"
#include "planner/cli/model/model_folder.h"
#include "planner/cli/plan_request.h"
#include "planner/cli/profile_file.h"
#include "planner/cli/up/batch_source.h"
#include "planner/cli/up/cost_profile_cache.h"
#include "planner/cli/up/machine.h"

namespace penstock::cli {
namespace {

constexpr absl::Duration kHeartbeatTimeout = absl::Seconds(5);
// Of simulated workers: starting one keeps a core busy for about a second.
constexpr absl::Duration kCrowding = absl::Seconds(2);
// Of the memory that is available, what the ranks may plan with.
constexpr double kMemoryShare = 0.8;

bool IsSimulated(const UpOptions& options) { return options.device == UpDevice::kSimulated; }

std::string DefaultJobId(const std::string& dataset) {
  std::string id = std::filesystem::path(dataset).filename().string();
  for (char& c : id) {
    if (!absl::ascii_isalnum(c) && c != '-' && c != '_' && c != '.') c = '-';
  }
  return absl::StrCat(id.substr(0, 64), "-",
                      absl::FormatTime("%Y%m%d-%H%M%S", absl::Now(), absl::LocalTimeZone()));
}

void NameWhatHasNoName(UpOptions* options) {
  if (options->job_id.empty()) {
    options->job_id = DefaultJobId(options->dataset.empty() ? options->lengths : options->dataset);
  }
  if (options->run_dir.empty()) options->run_dir = absl::StrCat(kRunsFolder, "/", options->job_id);
}

// What --init-from names.
absl::StatusOr<ModelFolder> InitialModel(const UpOptions& options) {
  absl::StatusOr<ModelFolder> folder = OpenModelFolder(options.init_from);
  if (!folder.ok()) return AnnotateError(folder.status(), "--init-from");
  return folder;
}

// What --model describes.
absl::StatusOr<v1::ModelSpec> ConfiguredModel(const UpOptions& options, const RunSetupTools& tools) {
  const absl::StatusOr<HuggingFaceModel> model = ReadHuggingFaceConfig(options.model);
  if (!model.ok()) return AnnotateError(model.status(), "--model");
  if (!model->dropout.empty())
    tools.say(absl::StrCat("model: ", model->dropout, ": Penstock trains without dropout"));
  return model->spec;
}

// A model that --model or --init-from gives as a whole.
absl::StatusOr<v1::ModelSpec> WholeModel(const UpOptions& options, const RunData& data,
                                         const RunSetupTools& tools) {
  const absl::string_view flag = options.init_from.empty() ? "--model" : "--init-from";
  v1::ModelSpec model;
  if (options.model_of_run) {
    PENSTOCK_ASSIGN_OR_RETURN(model, ReadModel(options.run_dir));
  } else if (options.init_from.empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(model, ConfiguredModel(options, tools));
  } else {
    PENSTOCK_ASSIGN_OR_RETURN(const ModelFolder folder, InitialModel(options));
    model = folder.model;
  }
  PENSTOCK_RETURN_IF_ERROR(data.CheckVocab(flag, model.vocab()));
  return FitModel(options, flag, std::move(model));
}

// Of the flags; of simulated devices, of the profile.
absl::StatusOr<v1::ModelSpec> ModelOf(const UpOptions& options, const RunData& data,
                                      const std::optional<v1::ProfileFile>& profile,
                                      const RunSetupTools& tools) {
  if (IsSimulated(options)) return profile->model();
  if (!options.model.empty() || !options.init_from.empty()) return WholeModel(options, data, tools);
  PENSTOCK_ASSIGN_OR_RETURN(const uint32_t vocab, data.Vocab(options));
  return ModelOfFlags(options, vocab);
}

// A run that begins anew removes the checkpoints of its folder.
absl::Status CheckInitialModelStays(const UpOptions& options) {
  if (options.init_from.empty() || options.resume) return absl::OkStatus();
  std::error_code ignored;
  if (!std::filesystem::equivalent(options.init_from, options.run_dir, ignored)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--init-from: '", options.init_from,
                                                 "' is the folder of --run-dir; name another one there"));
}

// What workers begin with: the checkpoint's folder; none where they go on from one of the run.
absl::Status FindInitialValues(UpOptions* options) {
  if (options->resume) options->init_from.clear();
  if (options->init_from.empty()) return absl::OkStatus();
  PENSTOCK_ASSIGN_OR_RETURN(const ModelFolder folder, InitialModel(*options));
  options->init_from = std::filesystem::absolute(folder.checkpoint).string();
  return absl::OkStatus();
}

absl::StatusOr<v1::JobSpec> MakeJob(const UpOptions& options, const RunData& data,
                                    const std::optional<v1::ProfileFile>& profile,
                                    const RunSetupTools& tools) {
  PENSTOCK_ASSIGN_OR_RETURN(const v1::ModelSpec model, ModelOf(options, data, profile, tools));
  PENSTOCK_ASSIGN_OR_RETURN(v1::JobSpec job, MakeJobSpec(options, model));
  PENSTOCK_RETURN_IF_ERROR(data.CheckCut(options, model.architecture()));
  // The first global batch is a sample of the data; with --lengths it is the one that `penstock plan` plans.
  SetTypicalSamples({data.MakeBatches(options, model.architecture())->Make(0)}, &job);
  if (IsSimulated(options)) {
    job.set_heartbeat_timeout_ms(absl::ToInt64Milliseconds(kHeartbeatTimeout + Crowding(options)));
  }
  return job;
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
                           .say = tools.say},
                          record);
}

// Better now than after the training.
absl::Status CheckTracePath(const UpOptions& options) {
  if (options.trace.empty()) return absl::OkStatus();
  return AnnotateError(CheckWritable(options.trace), "--trace");
}

// That of the cache, which is measured first where it is not there.
absl::StatusOr<v1::CostProfile> MeasuredProfileOf(const UpOptions& options, const v1::ModelSpec& model,
                                                  const RunSetupTools& tools) {
  const MeasureOptions measure = {
      .worker_binary = absl::StrCat(tools.bin_dir, "/penstock-worker"),
      .model = model,
      .threads = ThreadsOfEachWorker(options),
      .copies = WorkerCount(options),
      .seconds = options.profile_seconds,
      .cache_dir = absl::StrCat(CacheFolder(), "/profiles"),
      .on_start = [&] { tools.say("cost profile: measuring this model on this machine, once"); },
      .stopped = tools.stopped};
  PENSTOCK_ASSIGN_OR_RETURN(const MeasuredProfile measured, MeasureOrReadProfile(measure));
  tools.say(absl::StrCat("cost profile: ", measured.path, " (remove it to measure anew)"));
  return measured.file.profile();
}

// An equal share of what this machine has left.
absl::StatusOr<int64_t> MemoryOfOneWorker(const UpOptions& options) {
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t available, AvailableMemoryBytes());
  return static_cast<int64_t>(kMemoryShare * static_cast<double>(available)) / WorkerCount(options);
}

absl::Status AddCosts(const UpOptions& options, const std::optional<v1::ProfileFile>& profile,
                      const RunSetupTools& tools, v1::JobSpec* job) {
  if (profile.has_value()) {
    *job->mutable_profile() = profile->profile();
  } else {
    PENSTOCK_ASSIGN_OR_RETURN(*job->mutable_profile(), MeasuredProfileOf(options, job->model(), tools));
  }
  if (job->planning().memory_limit_bytes() == 0 && !IsSimulated(options)) {
    PENSTOCK_ASSIGN_OR_RETURN(const int64_t bytes, MemoryOfOneWorker(options));
    job->mutable_planning()->set_memory_limit_bytes(bytes);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RunSetup> SetUpRun(UpOptions options, const RunSetupTools& tools) {
  PENSTOCK_RETURN_IF_ERROR(CheckDevice(options));
  PENSTOCK_ASSIGN_OR_RETURN(RunData data, RunData::Open(options));
  std::optional<v1::ProfileFile> profile;
  if (!options.profile.empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(profile, ReadProfileFile("--profile", options.profile));
  }
  NameWhatHasNoName(&options);
  PENSTOCK_RETURN_IF_ERROR(CheckTracePath(options));
  PENSTOCK_RETURN_IF_ERROR(CheckInitialModelStays(options));
  PENSTOCK_ASSIGN_OR_RETURN(v1::JobSpec job, MakeJob(options, data, profile, tools));
  PENSTOCK_ASSIGN_OR_RETURN(RunFolder folder, MakeFolder(options, data, job, tools));
  job.set_first_iteration(folder.first_iteration);
  if (job.first_iteration() >= options.iterations) {
    return absl::InvalidArgumentError(absl::StrCat("--iterations ", options.iterations,
                                                   ": the checkpoint is already at ", job.first_iteration(),
                                                   "; ask for more"));
  }
  PENSTOCK_RETURN_IF_ERROR(FindInitialValues(&options));
  PENSTOCK_RETURN_IF_ERROR(AddCosts(options, profile, tools, &job));
  return RunSetup{std::move(options), std::move(data), std::move(job), std::move(folder)};
}

absl::Duration HeartbeatTimeoutOf(const v1::JobSpec& job) {
  return job.heartbeat_timeout_ms() > 0 ? absl::Milliseconds(job.heartbeat_timeout_ms()) : kHeartbeatTimeout;
}

absl::Duration Crowding(const UpOptions& options) {
  return kCrowding * WorkerCount(options) / std::max(1U, std::thread::hardware_concurrency());
}

}  // namespace penstock::cli
