#include "planner/cli/up/job_setup.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "planner/cli/model/hugging_face_config.h"
#include "planner/cli/plan_request.h"
#include "planner/cli/profile_file.h"
#include "planner/cli/up/batch_source.h"
#include "planner/cli/up/cost_profile_cache.h"
#include "planner/cli/up/machine.h"
#include "planner/cli/up/proposed_strategies.h"
#include "planner/core/contract/check_group.h"
#include "planner/core/contract/limits.h"
#include "planner/core/cost/adapted_profile.h"

namespace penstock::cli {
namespace {

constexpr absl::Duration kHeartbeatTimeout = absl::Seconds(5);
// Of simulated workers: starting one keeps a core busy for about a second.
constexpr absl::Duration kCrowding = absl::Seconds(2);
// Of a GPU's memory, what is planned with: the rest is for the context of CUDA, the buffers of NCCL and the
// gaps that the allocator leaves.
constexpr double kGpuMemoryShare = 0.85;

// The GPUs that a profile is measured on, side by side: those of one machine's workers. `penstock feed`
// starts none, and takes one.
std::vector<uint32_t> MeasuredGpus(const UpOptions& options) {
  if (!IsOnGpus(options)) return {};
  std::vector<uint32_t> gpus = options.device.gpus;
  if (gpus.empty()) {
    gpus.resize(options.gpus.empty() ? 1 : WorkersOfOneMachine(options));
    std::iota(gpus.begin(), gpus.end(), 0);
  }
  return gpus;
}

// What --model describes.
absl::StatusOr<v1::ModelSpec> ConfiguredModel(const UpOptions& options, const RunSetupTools& tools) {
  const absl::StatusOr<HuggingFaceModel> model = ReadHuggingFaceConfig(options.model);
  if (!model.ok()) return AnnotateError(model.status(), "--model");
  if (!model->dropout.empty())
    tools.say(absl::StrCat("model: ", model->dropout, ": Penstock trains without dropout"));
  return model->spec;
}

// The model that --model or --init-from gives as a whole.
absl::StatusOr<std::optional<v1::ModelSpec>> ReadGivenModel(const UpOptions& options,
                                                            const RunSetupTools& tools) {
  if (options.given_model.has_value()) return options.given_model;
  if (IsSimulated(options) || (options.model.empty() && options.init_from.empty())) return std::nullopt;
  if (options.model_of_run) {
    PENSTOCK_ASSIGN_OR_RETURN(v1::ModelSpec model, ReadModel(options.run_dir));
    PENSTOCK_RETURN_IF_ERROR(options.adapters.Give(&model));
    return model;
  }
  if (options.init_from.empty()) return ConfiguredModel(options, tools);
  PENSTOCK_ASSIGN_OR_RETURN(ModelFolder folder, OpenInitialModel(options));
  PENSTOCK_RETURN_IF_ERROR(options.adapters.Give(&folder.model));
  return folder.model;
}

// What is given as a whole; of simulated devices that of the profile, else that of the flags.
absl::StatusOr<v1::ModelSpec> ModelOf(const UpOptions& options, const RunData& data,
                                      const GivenParts& given) {
  if (IsSimulated(options)) return given.profile->model();
  if (given.model.has_value()) {
    const absl::string_view flag = options.init_from.empty() ? "--model" : "--init-from";
    PENSTOCK_RETURN_IF_ERROR(data.CheckVocab(flag, given.model->vocab()));
    return FitModel(options, flag, *given.model);
  }
  PENSTOCK_ASSIGN_OR_RETURN(const uint32_t vocab, data.Vocab(options));
  return ModelOfFlags(options, vocab);
}

v1::Architecture ArchitectureOf(const UpOptions& options, const GivenParts& given) {
  if (IsSimulated(options)) return given.profile->model().architecture();
  return given.model.has_value() ? given.model->architecture() : options.architecture;
}

// That of the cache, which is measured first where it is not there.
absl::StatusOr<v1::CostProfile> MeasuredProfileOf(const UpOptions& options, const v1::ModelSpec& model,
                                                  const RunSetupTools& tools) {
  const std::vector<uint32_t> gpus = MeasuredGpus(options);
  const MeasureOptions measure = {
      .worker_binary = absl::StrCat(tools.bin_dir, "/penstock-worker"),
      .model = model,
      .threads = ThreadsOfEachWorker(options),
      .copies = gpus.empty() ? WorkersOfOneMachine(options) : static_cast<uint32_t>(gpus.size()),
      .gpus = gpus,
      .tensor_degrees = ProposesStrategies(options) ? TensorDegreesFor(model, WorkerCount(options))
                                                    : TensorDegreesOf(options),
      .context_ranks = ContextRanksToMeasure(
          model, ProposesStrategies(options) ? WorkerCount(options) : MostContextRanksOf(options)),
      .expert = options.expert,
      .seconds = options.profile_seconds,
      .cache_dir = absl::StrCat(CacheFolder(), "/profiles"),
      .on_start =
          [&](bool goes_on) {
            tools.say(absl::StrCat(
                "cost profile: measuring this model on this machine", gpus.empty() ? "" : "'s GPU",
                goes_on ? ", going on with a measurement that was interrupted" : ", once"));
          },
      .stopped = tools.stopped};
  const absl::StatusOr<MeasuredProfile> measured = MeasureOrReadProfile(measure);
  if (!measured.ok() && !gpus.empty() && !absl::IsCancelled(measured.status())) {
    return absl::Status(measured.status().code(),
                        absl::StrCat(measured.status().message(), "\n--device ", options.device.name,
                                     ": where this machine has no such GPU, give --profile"));
  }
  PENSTOCK_RETURN_IF_ERROR(measured.status());
  tools.say(
      measured->disturbance.empty()
          ? absl::StrCat("cost profile: ", measured->path, " (remove it to measure anew)")
          : absl::StrCat("cost profile: not kept, the next run measures anew: ", measured->disturbance));
  return measured->file.profile();
}

// Of a profile of the model, or of the same model without its adapters.
absl::StatusOr<v1::CostProfile> CostsOf(const v1::ModelSpec& model, v1::ProfileFile profile) {
  if (model.has_adapters()) {
    PENSTOCK_RETURN_IF_ERROR(AnnotateError(core::AdaptProfile(model.adapters(), &profile), "--profile"));
  } else if (profile.model().has_adapters()) {
    return absl::InvalidArgumentError(
        "--profile: it is of a model with adapters, and all of this one learns; measure it anew, or give "
        "--lora-rank");
  }
  return profile.profile();
}

}  // namespace

absl::StatusOr<GivenParts> ReadGivenParts(const UpOptions& options, const RunSetupTools& tools) {
  GivenParts given;
  if (!options.profile.empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(given.profile, ReadProfileFile("--profile", options.profile));
    if (IsSimulated(options)) PENSTOCK_RETURN_IF_ERROR(options.adapters.Give(&*given.profile));
  }
  // The planner reads it, too.
  if (!options.true_profile.empty()) {
    const absl::Status read = ReadProfileFile("the file", options.true_profile).status();
    PENSTOCK_RETURN_IF_ERROR(AnnotateError(read, "--true-profile"));
  }
  PENSTOCK_ASSIGN_OR_RETURN(given.model, ReadGivenModel(options, tools));
  return given;
}

absl::Status CountIterations(const RunData& data, const GivenParts& given, UpOptions* options) {
  if (options->epochs == 0) return absl::OkStatus();
  PENSTOCK_ASSIGN_OR_RETURN(const CutSummary cut,
                            data.SummarizeCut(*options, ArchitectureOf(*options, given)));
  const double samples = options->epochs * static_cast<double>(cut.samples - cut.dropped_samples);
  const double iterations = std::ceil(samples / static_cast<double>(options->global_batch));
  if (iterations > static_cast<double>(core::kMostIterations)) {
    return absl::InvalidArgumentError(absl::StrCat("--epochs ", options->epochs, " are ", iterations,
                                                   " iterations, at most ", core::kMostIterations,
                                                   " are allowed"));
  }
  options->iterations = static_cast<uint64_t>(iterations);
  return absl::OkStatus();
}

absl::StatusOr<v1::JobSpec> MakeJob(const UpOptions& options, const RunData& data, const GivenParts& given,
                                    const RunSetupTools& tools) {
  PENSTOCK_ASSIGN_OR_RETURN(const v1::ModelSpec model, ModelOf(options, data, given));
  PENSTOCK_ASSIGN_OR_RETURN(v1::JobSpec job, MakeJobSpec(options, model));
  // Better now than after a profile was measured.
  PENSTOCK_RETURN_IF_ERROR(RunData::CheckValidation(options.validation, model.vocab()));
  if (options.mix.size() > 1 && options.validation.size() == 1) {
    tools.say(
        "validation: one loss for all tasks; name data of each, --validation PATH,PATH,..., for a loss of "
        "each");
  }
  PENSTOCK_RETURN_IF_ERROR(core::CheckGroupOfModel(job.mesh(), model));
  PENSTOCK_ASSIGN_OR_RETURN(const CutSummary cut, data.SummarizeCut(options, model.architecture()));
  tools.say(DescribeCut(cut));
  // The first global batch is a sample of the data; with --lengths it is the one that `penstock plan` plans.
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<BatchSource> batches,
                            data.MakeBatches(options, model.architecture()));
  SetTypicalSamples({batches->Make(0)}, &job);
  for (const std::string& task : data.JobTasks(options)) job.add_tasks(task);
  if (IsSimulated(options)) {
    job.set_heartbeat_timeout_ms(absl::ToInt64Milliseconds(kHeartbeatTimeout + Crowding(options)));
  }
  return job;
}

absl::Status AddProfile(const UpOptions& options, const std::optional<v1::ProfileFile>& profile,
                        const RunSetupTools& tools, v1::JobSpec* job) {
  if (profile.has_value()) {
    PENSTOCK_ASSIGN_OR_RETURN(*job->mutable_profile(), CostsOf(job->model(), *profile));
  } else {
    PENSTOCK_ASSIGN_OR_RETURN(*job->mutable_profile(), MeasuredProfileOf(options, job->model(), tools));
  }
  // They are named by the ranks that the run began with; fits find again what is slow.
  if (options.on_fewer_ranks) {
    job->mutable_profile()->clear_slow_ranks();
    job->mutable_profile()->clear_slow_links();
  }
  AddMemoryLimitOfGpus(options, job);
  return absl::OkStatus();
}

void AddMemoryLimitOfGpus(const UpOptions& options, v1::JobSpec* job) {
  if (!IsOnGpus(options) || job->planning().memory_limit_bytes() != 0) return;
  const auto memory = static_cast<double>(job->profile().cluster().memory_bytes());
  job->mutable_planning()->set_memory_limit_bytes(static_cast<int64_t>(kGpuMemoryShare * memory));
}

absl::StatusOr<ModelFolder> OpenInitialModel(const UpOptions& options) {
  absl::StatusOr<ModelFolder> folder = OpenModelFolder(options.init_from);
  if (!folder.ok()) return AnnotateError(folder.status(), "--init-from");
  return folder;
}

absl::Duration HeartbeatTimeoutOf(const v1::JobSpec& job) {
  return job.heartbeat_timeout_ms() > 0 ? absl::Milliseconds(job.heartbeat_timeout_ms()) : kHeartbeatTimeout;
}

absl::Duration Crowding(const UpOptions& options) {
  return kCrowding * WorkersOfOneMachine(options) / std::max(1U, std::thread::hardware_concurrency());
}

}  // namespace penstock::cli
