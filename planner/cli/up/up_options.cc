#include "planner/cli/up/up_options.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/grpc/targets.h"
#include "common/mesh/mesh_ranks.h"
#include "common/status/status_macros.h"
#include "planner/cli/up/check_range.h"
#include "planner/cli/up/expert_options.h"
#include "planner/cli/up/host_file.h"
#include "planner/cli/up/rank_validation.h"
#include "planner/core/contract/limits.h"
#include "planner/core/contract/total_layers.h"

namespace penstock::cli {
namespace {

constexpr uint32_t kDefaultMaxLength = 2048;
// Of the iterations, one in so many cools down where nobody says how many.
constexpr uint64_t kCooldownPart = 5;
// Beside a GPU a worker's threads prepare tokens and write checkpoints: more of them only get into each
// other's way.
constexpr uint32_t kMostThreadsBesideAGpu = 4;

absl::Status CheckNumber(absl::string_view flag, double value, double least, double most) {
  if (value >= least && value <= most) return absl::OkStatus();  // NaN is not
  return absl::InvalidArgumentError(absl::StrCat(flag, " ", value, ": use ", least, " to ", most));
}

// The contract takes 0 for the default.
absl::Status CheckShare(absl::string_view flag, double value) {
  if (value > 0 && value < 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(flag, " ", value, ": use a number above 0 and below 1"));
}

absl::Status CheckTraining(const UpOptions& options) {
  PENSTOCK_RETURN_IF_ERROR(CheckNumber("--lr", options.learning_rate, 0, 1e3));
  PENSTOCK_RETURN_IF_ERROR(CheckNumber("--min-lr", options.minimum_learning_rate, 0, 1e3));
  PENSTOCK_RETURN_IF_ERROR(CheckShare("--beta1", options.beta1));
  PENSTOCK_RETURN_IF_ERROR(CheckShare("--beta2", options.beta2));
  PENSTOCK_RETURN_IF_ERROR(CheckShare("--epsilon", options.epsilon));
  PENSTOCK_RETURN_IF_ERROR(CheckNumber("--weight-decay", options.weight_decay, 0, 1e3));
  PENSTOCK_RETURN_IF_ERROR(CheckNumber("--clip-norm", options.clip_norm, 0, 1e9));
  PENSTOCK_RETURN_IF_ERROR(CheckRange("--warmup", options.warmup, 0, core::kMostIterations));
  PENSTOCK_RETURN_IF_ERROR(CheckRange("--cooldown", options.cooldown, 0, core::kMostIterations));
  if (options.cooldown > 0 && options.rate_decay != v1::RATE_DECAY_COOLDOWN)
    return absl::InvalidArgumentError("--cooldown: only --lr-decay cooldown has one");
  PENSTOCK_RETURN_IF_ERROR(
      CheckRange("--checkpoint-every", options.checkpoint_every, 0, core::kMostIterations));
  if (options.no_checkpoints && options.checkpoint_every > 0) {
    return absl::InvalidArgumentError("--no-checkpoints and --checkpoint-every exclude each other: give one");
  }
  PENSTOCK_RETURN_IF_ERROR(CheckRange("--stop-seconds", options.stop_seconds, 0, 86400));
  PENSTOCK_RETURN_IF_ERROR(CheckRange("--threads", options.threads, 0, 4096));
  return CheckNumber("--profile-seconds", options.profile_seconds, 0.1, 3600);
}

// Before the workers are counted.
absl::Status CheckMesh(const UpOptions& options) {
  PENSTOCK_RETURN_IF_ERROR(CheckRange("--pp", options.pipeline, 1, core::kMostPipelineRanks));
  PENSTOCK_RETURN_IF_ERROR(CheckRange("--dp", options.data, 1, 4096));
  PENSTOCK_RETURN_IF_ERROR(CheckRange("--tp", options.tensor, 1, core::kMostTensorRanks));
  PENSTOCK_RETURN_IF_ERROR(CheckRange("--cp", options.context, 1, core::kMostContextRanks));
  PENSTOCK_RETURN_IF_ERROR(
      CheckRange("--ep", options.expert, 1, core::kMostContextRanks * core::kMostTensorRanks));
  const uint64_t workers = RanksOf(MeshOf(options));
  if (workers <= core::kMostRanks) return absl::OkStatus();
  const std::string group = GroupRanks(MeshOf(options)) > 1
                                ? absl::StrCat(" x --cp ", options.context, " x --tp ", options.tensor)
                                : "";
  return absl::InvalidArgumentError(absl::StrCat("--pp ", options.pipeline, " x --dp ", options.data, group,
                                                 ": ", workers, " workers; use at most ", core::kMostRanks));
}

absl::Status CheckWorkerMetrics(const UpOptions& options) {
  const std::string& address = options.worker_metrics_listen;
  if (address.empty()) return absl::OkStatus();
  constexpr uint64_t kMostPort = 65535;
  uint64_t port = 0;
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || !absl::SimpleAtoi(address.substr(colon + 1), &port))
    return absl::InvalidArgumentError(absl::StrCat("--worker-metrics-listen ", address, ": use HOST:PORT"));
  const uint64_t last = port == 0 ? 0 : port + WorkerCount(options) - 1;
  if (last <= kMostPort) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--worker-metrics-listen ", address,
                                                 ": the last rank would serve on port ", last,
                                                 "; use a lower port, or 0 for free ones"));
}

absl::Status CheckMinRanks(const UpOptions& options) {
  if (options.min_ranks == 0) return absl::OkStatus();
  PENSTOCK_RETURN_IF_ERROR(CheckRange("--min-ranks", options.min_ranks, 1, WorkerCount(options)));
  if (options.max_restarts == 0) {
    return absl::InvalidArgumentError(
        "--min-ranks: with --max-restarts 0 the run ends with its first worker; allow restarts");
  }
  if (WritesCheckpoints(options) && options.checkpoint_every > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "--min-ranks: a run that goes on with fewer ranks needs checkpoints; give --checkpoint-every");
}

absl::Status CheckSizes(const UpOptions& options) {
  PENSTOCK_RETURN_IF_ERROR(CheckMesh(options));
  PENSTOCK_RETURN_IF_ERROR(CheckMinRanks(options));
  PENSTOCK_RETURN_IF_ERROR(CheckWorkerMetrics(options));
  PENSTOCK_RETURN_IF_ERROR(CheckRange("--global-batch", options.global_batch, 1, 1 << 20));
  return CheckRange("--iterations", options.iterations, 1, 1ULL << 40);
}

absl::Status CheckLayers(const UpOptions& options) {
  const bool t5 = options.architecture == v1::ARCHITECTURE_T5;
  if (t5) {
    PENSTOCK_RETURN_IF_ERROR(CheckRange("--encoder-layers", options.encoder_layers, 1, core::kMostLayers));
    PENSTOCK_RETURN_IF_ERROR(CheckRange("--decoder-layers", options.decoder_layers, 1, core::kMostLayers));
  } else {
    PENSTOCK_RETURN_IF_ERROR(CheckRange("--layers", options.layers, 1, core::kMostLayers));
  }
  const uint32_t layers = t5 ? options.encoder_layers + options.decoder_layers : options.layers;
  if (layers >= options.pipeline) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--pp ", options.pipeline, " with ", layers,
                                                 " layers: a stage needs a layer; use fewer stages or more ",
                                                 t5 ? "--encoder-layers, --decoder-layers" : "--layers"));
}

absl::Status CheckLimits(const LengthLimits& limits) {
  PENSTOCK_RETURN_IF_ERROR(CheckRange("--max-length", limits.max_length, 2, core::kMostSequenceLength));
  PENSTOCK_RETURN_IF_ERROR(CheckRange("--max-input", limits.max_input, 0, core::kMostSequenceLength));
  return CheckRange("--max-target", limits.max_target, 0, core::kMostSequenceLength);
}

bool HasEndlessPositions(const v1::ModelSpec& model) { return model.architecture() == v1::ARCHITECTURE_T5; }

uint32_t LongestOf(const LengthLimits& limits) {
  return std::max({limits.max_length, limits.max_input, limits.max_target});
}

void FillTraining(const UpOptions& options, v1::TrainingSpec& training) {
  training.set_seed(options.seed);
  training.mutable_learning_rate()->set_peak(options.learning_rate);
  training.mutable_learning_rate()->set_minimum(options.minimum_learning_rate);
  training.mutable_learning_rate()->set_warmup_iterations(options.warmup);
  training.mutable_learning_rate()->set_decay_iterations(options.iterations);
  training.mutable_learning_rate()->set_decay(options.rate_decay);
  if (options.rate_decay == v1::RATE_DECAY_COOLDOWN) {
    const uint64_t cooldown = options.cooldown > 0 ? options.cooldown : options.iterations / kCooldownPart;
    training.mutable_learning_rate()->set_cooldown_iterations(cooldown);
  }
  training.set_beta1(options.beta1);
  training.set_beta2(options.beta2);
  training.set_epsilon(options.epsilon);
  training.set_weight_decay(options.weight_decay);
  training.set_clip_norm(options.clip_norm);
  training.set_checkpoint_interval(options.checkpoint_every);
  training.set_iterations(options.iterations);
}

}  // namespace

v1::Mesh MeshOf(const UpOptions& options) {
  return MakeMesh(options.pipeline, options.data, options.tensor, options.context, options.expert);
}

std::vector<uint32_t> TensorDegreesOf(const UpOptions& options) {
  std::set<uint32_t> degrees = {options.tensor};
  for (const v1::Strategy& strategy : options.strategies)
    for (const v1::StrategyMesh& mesh : strategy.meshes()) degrees.insert(TensorRanks(mesh.mesh()));
  return {degrees.begin(), degrees.end()};
}

uint32_t MostContextRanksOf(const UpOptions& options) {
  uint32_t most = options.context;
  for (const v1::Strategy& strategy : options.strategies)
    for (const v1::StrategyMesh& mesh : strategy.meshes()) most = std::max(most, ContextRanks(mesh.mesh()));
  return most;
}

void UseMesh(const v1::Mesh& mesh, UpOptions* options) {
  options->pipeline = mesh.pipeline();
  options->data = mesh.data();
  options->context = ContextRanks(mesh);
  options->tensor = TensorRanks(mesh);
  options->expert = ExpertRanks(mesh);
}

void UseStrategies(std::vector<v1::Strategy> strategies, UpOptions* options) {
  options->strategies = std::move(strategies);
  options->planning.parameter_shares = true;
  UseMesh(options->strategies.front().meshes(0).mesh(), options);
}

uint32_t WorkerCount(const UpOptions& options) {
  const uint64_t ranks =
      options.strategies.empty() ? RanksOf(MeshOf(options)) : RanksOf(options.strategies.front());
  return static_cast<uint32_t>(ranks);
}

uint32_t WorkersOfOneMachine(const UpOptions& options) {
  if (options.hosts.empty()) return WorkerCount(options);
  std::map<std::string, uint32_t> workers;
  uint32_t most = 0;
  for (const std::string& host : options.hosts) most = std::max(most, ++workers[host]);
  return most;
}

absl::Status FindHosts(UpOptions* options) {
  if (options->hosts_file.empty()) return absl::OkStatus();
  PENSTOCK_RETURN_IF_ERROR(CheckMesh(*options));
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<WorkerHost> hosts, ReadHostFile(options->hosts_file));
  std::erase_if(hosts, [&](const WorkerHost& host) { return options->lost_hosts.contains(host.name); });
  PENSTOCK_ASSIGN_OR_RETURN(options->hosts, HostOfEachRank(hosts, WorkerCount(*options)));
  if (!options->planner.address.empty()) return absl::OkStatus();
  for (const std::string& host : options->hosts) {
    if (IsThisMachine(host)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "--hosts: '", host, "' does not reach a planner that is started here, which listens on the local ",
        "address alone: start penstock-planner with certificates (docs/security.md) and give --planner"));
  }
  return absl::OkStatus();
}

absl::Status FindGpus(UpOptions* options) {
  if (!IsOnGpus(*options)) return absl::OkStatus();
  absl::StatusOr<std::vector<uint32_t>> gpus = options->hosts.empty()
                                                   ? GpuOfEachRank(options->device, WorkerCount(*options))
                                                   : GpuOfEachRank(options->device, options->hosts);
  PENSTOCK_ASSIGN_OR_RETURN(options->gpus, std::move(gpus));
  return absl::OkStatus();
}

bool WritesCheckpoints(const UpOptions& options) {
  const bool trains = !IsSimulated(options);
  return !options.no_checkpoints && (trains || options.checkpoint_every > 0);
}

bool MayRescue(const UpOptions& options) {
  const bool redundant = options.strategies.empty() && !options.planning.shard_optimizer_state &&
                         options.data * options.context > 1;
  return redundant && WritesCheckpoints(options) && !options.no_rescue;
}

uint32_t ThreadsOfEachWorker(const UpOptions& options) {
  if (options.threads != 0) return options.threads;
  const uint32_t share = std::max(1U, std::thread::hardware_concurrency() / WorkersOfOneMachine(options));
  return IsOnGpus(options) ? std::min(share, kMostThreadsBesideAGpu) : share;
}

absl::Status CheckData(const UpOptions& options) {
  const bool simulated = IsSimulated(options);
  if (!options.page_listen.empty() && !IsLoopback(options.page_listen)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--page-listen ", options.page_listen,
                     ": the page asks nobody who reads it; use 127.0.0.1:PORT, and ssh -L from elsewhere"));
  }
  if (!options.lengths.empty() != !options.rows.empty()) {
    return absl::InvalidArgumentError("--lengths and --rows belong together: give both or neither");
  }
  if (!options.dataset.empty() && !options.mix.empty())
    return absl::InvalidArgumentError("--dataset and --mix exclude each other: name all datasets in --mix");
  const bool has_tokens = !options.dataset.empty() || !options.mix.empty();
  if (has_tokens == !options.lengths.empty()) {
    return absl::InvalidArgumentError(simulated ? "give either --dataset, --mix, or --lengths and --rows"
                                                : "--dataset is required, or --mix");
  }
  if (!simulated && !options.lengths.empty()) {
    return absl::InvalidArgumentError("--lengths is for --device simulated: give --dataset");
  }
  return absl::OkStatus();
}

absl::Status CheckDevice(const UpOptions& options) {
  PENSTOCK_RETURN_IF_ERROR(CheckMesh(options));
  PENSTOCK_RETURN_IF_ERROR(CheckData(options));
  const bool simulated = IsSimulated(options);
  if (simulated && options.profile.empty()) {
    return absl::InvalidArgumentError(
        "--device simulated takes model and times of a cost profile: give --profile");
  }
  PENSTOCK_RETURN_IF_ERROR(CheckClockErrors(options.clock_errors, WorkerCount(options)));
  return simulated ? CheckSimulation(options.simulation, WorkerCount(options)) : absl::OkStatus();
}

void LimitLengthsTo(const v1::ModelSpec& model, UpOptions* options) {
  if (options->limits.max_length != 0 || IsSimulated(*options) || HasEndlessPositions(model)) return;
  options->limits.max_length = std::min(kDefaultMaxLength, model.max_sequence_length());
}

SampleCut CutOf(const UpOptions& options, v1::Architecture architecture) {
  SampleCut cut = {.architecture = architecture, .limits = options.limits};
  if (cut.limits.max_length == 0 && !IsSimulated(options)) {
    cut.limits.max_length = kDefaultMaxLength;
  }
  return cut;
}

absl::StatusOr<v1::ModelSpec> ModelOfFlags(const UpOptions& options, uint32_t vocab) {
  const LengthLimits limits = CutOf(options, options.architecture).limits;
  PENSTOCK_RETURN_IF_ERROR(CheckLayers(options));
  PENSTOCK_RETURN_IF_ERROR(CheckRange("--hidden", options.hidden, 1, core::kMostWidth));
  PENSTOCK_RETURN_IF_ERROR(CheckRange("--attention-inner", options.attention_inner, 0, core::kMostWidth));
  PENSTOCK_RETURN_IF_ERROR(CheckRange("--heads", options.heads, 1, options.hidden));
  const uint32_t inner = options.attention_inner > 0 ? options.attention_inner : options.hidden;
  if (inner % options.heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.attention_inner > 0 ? "--attention-inner " : "--hidden ", inner,
                     " is no multiple of --heads ", options.heads));
  }
  PENSTOCK_RETURN_IF_ERROR(CheckRange("--ffn", options.ffn, 1, core::kMostFeedForwardWidth));
  PENSTOCK_RETURN_IF_ERROR(CheckExperts(options));
  PENSTOCK_RETURN_IF_ERROR(CheckLimits(limits));
  PENSTOCK_RETURN_IF_ERROR(CheckRange("--vocab", vocab, 2, core::kMostVocab));
  v1::ModelSpec model;
  model.set_architecture(options.architecture);
  if (options.architecture == v1::ARCHITECTURE_T5) {
    PENSTOCK_RETURN_IF_ERROR(CheckRange("--decoder-start-token", options.decoder_start_token, 0, vocab - 1));
    model.set_decoder_start_token(options.decoder_start_token);
    model.set_encoder_layers(options.encoder_layers);
    model.set_decoder_layers(options.decoder_layers);
  } else {
    model.set_layers(options.layers);
  }
  model.set_hidden(options.hidden);
  model.set_heads(options.heads);
  model.set_attention_inner(options.attention_inner);
  model.set_ffn(options.ffn);
  model.set_feed_forward(options.feed_forward);
  SetExperts(options, model);
  model.set_vocab(vocab);
  model.set_max_sequence_length(LongestOf(limits));
  model.set_dtype(options.dtype);
  return model;
}

absl::StatusOr<v1::ModelSpec> FitModel(const UpOptions& options, absl::string_view name,
                                       v1::ModelSpec model) {
  const LengthLimits limits = CutOf(options, model.architecture()).limits;
  PENSTOCK_RETURN_IF_ERROR(CheckLimits(limits));
  const uint32_t longest = LongestOf(limits);
  const bool endless = HasEndlessPositions(model);
  if (!endless && longest > model.max_sequence_length()) {
    return absl::InvalidArgumentError(absl::StrCat("--max-length ", longest, ": the model of ", name, " has ",
                                                   model.max_sequence_length(), " positions; use ",
                                                   model.max_sequence_length(), " or less"));
  }
  if (endless || model.position() == v1::POSITION_ROTARY) model.set_max_sequence_length(longest);
  const uint32_t layers = core::TotalLayers(model);
  if (layers < options.pipeline) {
    return absl::InvalidArgumentError(absl::StrCat("--pp ", options.pipeline, ": the model of ", name,
                                                   " has ", layers, " layers; a stage needs one"));
  }
  if (options.dtype_given) model.set_dtype(options.dtype);
  return model;
}

absl::StatusOr<v1::JobSpec> MakeJobSpec(const UpOptions& options, const v1::ModelSpec& model) {
  PENSTOCK_RETURN_IF_ERROR(CheckSizes(options));
  PENSTOCK_RETURN_IF_ERROR(CheckTraining(options));
  if (model.architecture() != v1::ARCHITECTURE_T5 &&
      (options.limits.max_input > 0 || options.limits.max_target > 0)) {
    return absl::InvalidArgumentError(
        "--max-input and --max-target are for encoder-decoder models: use --max-length");
  }
  v1::JobSpec job;
  job.set_job_id(options.job_id);
  PENSTOCK_ASSIGN_OR_RETURN(*job.mutable_model(), WithRouterOptions(options, model));
  *job.mutable_mesh() = MeshOf(options);
  job.mutable_strategies()->Assign(options.strategies.begin(), options.strategies.end());
  *job.mutable_planning() = options.planning.ToOptions(options.policy);
  FillTraining(options, *job.mutable_training());
  job.set_look_ahead_window(options.look_ahead);
  job.set_fixed_costs(options.fixed_costs);
  job.set_simulated(IsSimulated(options));
  if (ValidatesOnRanks(options)) PENSTOCK_RETURN_IF_ERROR(CheckRanksCanValidate(job));
  return job;
}

}  // namespace penstock::cli
