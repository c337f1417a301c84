#include <algorithm>
#include <bit>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "worker/program/enum_from_proto.h"
#include "worker/program/from_proto.h"
#include "worker/program/require_positive.h"

namespace penstock::worker {
namespace {

// As the contract bounds them (job.proto, Mesh).
constexpr uint64_t kMaxRanks = 1 << 16;
constexpr uint32_t kMaxTensor = 64;
constexpr uint32_t kMaxContext = 1024;
constexpr int kMaxStrategies = 64;
constexpr int kMaxMeshes = 64;
constexpr uint32_t kMaxShareWeight = 1 << 20;
constexpr uint64_t kMaxBucketBytes = uint64_t{1} << 40;

// 0 stands for 1.
uint32_t DegreeOr1(uint32_t degree) { return std::max(degree, uint32_t{1}); }

absl::Status CheckMesh(const v1::Mesh& mesh) {
  PENSTOCK_RETURN_IF_ERROR(RequirePositive(mesh.pipeline(), "mesh.pipeline"));
  PENSTOCK_RETURN_IF_ERROR(RequirePositive(mesh.data(), "mesh.data"));
  if (mesh.tensor() > kMaxTensor) {
    return absl::InvalidArgumentError(
        absl::StrCat("mesh.tensor is ", mesh.tensor(), ", at most ", kMaxTensor, " are allowed"));
  }
  if (mesh.context() > kMaxContext || !std::has_single_bit(DegreeOr1(mesh.context()))) {
    return absl::InvalidArgumentError(
        absl::StrCat("mesh.context is ", mesh.context(), ", expected a power of two up to ", kMaxContext));
  }
  const uint64_t group = uint64_t{DegreeOr1(mesh.tensor())} * DegreeOr1(mesh.context());
  // In this order nothing overflows.
  if (uint64_t{mesh.pipeline()} * mesh.data() > kMaxRanks / group) {
    return absl::InvalidArgumentError(
        absl::StrCat("mesh of ", mesh.pipeline(), " x ", mesh.data(),
                     group > 1 ? absl::StrCat(" stage groups of ", group, " ranks") : "", " is more than ",
                     kMaxRanks, " ranks"));
  }
  return absl::OkStatus();
}

// That tensor ranks can divide the model evenly.
absl::Status CheckTensor(const ModelConfig& model, int64_t tensor) {
  const auto undivided = [&](const char* field, int64_t value) {
    return absl::InvalidArgumentError(
        absl::StrCat("mesh.tensor is ", tensor, ", which does not divide model.", field, ", ", value));
  };
  if (model.heads % tensor != 0) return undivided("heads", model.heads);
  if (model.ffn % tensor != 0) return undivided("ffn", model.ffn);
  if (model.shared_expert_ffn % tensor != 0) return undivided("shared_expert_ffn", model.shared_expert_ffn);
  const int64_t pairs = model.key_value_heads != 0 ? model.key_value_heads : model.heads;
  // Fewer of them than tensor ranks are repeated.
  if (pairs % tensor != 0 && tensor % pairs != 0) return undivided("key_value_heads", pairs);
  return absl::OkStatus();
}

// That ranks can divide the experts.
absl::Status CheckExpert(const ModelConfig& model, const v1::Mesh& mesh) {
  const uint32_t expert = DegreeOr1(mesh.expert());
  if (expert == 1) return absl::OkStatus();
  const uint32_t tensor = DegreeOr1(mesh.tensor());
  const uint32_t group = tensor * DegreeOr1(mesh.context());
  const auto wrong = [&](const auto&... parts) {
    return absl::InvalidArgumentError(absl::StrCat("mesh.expert is ", expert, parts...));
  };
  if (model.experts == 0) return wrong(", but the model has no experts");
  if (model.experts % expert != 0) return wrong(", which does not divide model.experts, ", model.experts);
  if (expert % tensor != 0) return wrong(", expected a multiple of mesh.tensor, ", tensor);
  if (group % expert != 0) return wrong(", which does not divide mesh.context x mesh.tensor, ", group);
  return absl::OkStatus();
}

absl::Status CheckMeshFor(const ModelConfig& model, const v1::Mesh& mesh) {
  PENSTOCK_RETURN_IF_ERROR(CheckMesh(mesh));
  PENSTOCK_RETURN_IF_ERROR(CheckTensor(model, DegreeOr1(mesh.tensor())));
  return CheckExpert(model, mesh);
}

MeshConfig MeshFromProto(const v1::Mesh& mesh) {
  return {.pipeline = mesh.pipeline(),
          .replicas = mesh.data(),
          .context = DegreeOr1(mesh.context()),
          .tensor = DegreeOr1(mesh.tensor()),
          .expert = DegreeOr1(mesh.expert())};
}

absl::StatusOr<StrategyConfig> StrategyFromProto(const v1::Strategy& proto, const ModelConfig& model) {
  if (proto.meshes().empty() || proto.meshes_size() > kMaxMeshes)
    return absl::InvalidArgumentError(
        absl::StrCat("meshes has ", proto.meshes_size(), ", 1 to ", kMaxMeshes, " are allowed"));
  StrategyConfig strategy;
  uint64_t ranks = 0;
  for (const v1::StrategyMesh& mesh : proto.meshes()) {
    PENSTOCK_RETURN_IF_ERROR(CheckMeshFor(model, mesh.mesh()));
    strategy.meshes.push_back(MeshFromProto(mesh.mesh()));
    ranks += strategy.meshes.back().ranks();
    if (ranks > kMaxRanks) return absl::InvalidArgumentError(absl::StrCat("meshes have ", ranks, " ranks"));
  }
  return strategy;
}

// `field`: of the message that has it. `ranks`: of the job; 0: not known yet.
absl::StatusOr<StrategyConfig> StrategyOfRanks(const v1::Strategy& proto, const std::string& field,
                                               const ModelConfig& model, uint32_t ranks) {
  absl::StatusOr<StrategyConfig> strategy = StrategyFromProto(proto, model);
  PENSTOCK_RETURN_IF_ERROR(AnnotateError(strategy.status(), field));
  if (ranks == 0 || strategy->ranks() == ranks) return strategy;
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": mesh has ", strategy->ranks(), " ranks, but the job has ", ranks));
}

absl::Status AddStrategies(const v1::JobSpec& proto, JobConfig& job) {
  if (job.parameter_shares && job.shard_optimizer_state)
    return absl::InvalidArgumentError("planning.parameter_shares is not for planning.shard_optimizer_state");
  if (proto.strategies().empty()) return absl::OkStatus();
  if (!job.parameter_shares) return absl::InvalidArgumentError("strategies need planning.parameter_shares");
  if (proto.strategies_size() > kMaxStrategies) {
    return absl::InvalidArgumentError(absl::StrCat("strategies has ", proto.strategies_size(), ", at most ",
                                                   kMaxStrategies, " are allowed"));
  }
  for (int i = 0; i < proto.strategies_size(); ++i) {
    const uint32_t ranks = i == 0 ? 0 : job.strategies.front().ranks();
    PENSTOCK_ASSIGN_OR_RETURN(
        StrategyConfig strategy,
        StrategyOfRanks(proto.strategies(i), absl::StrCat("strategies[", i, "]"), job.model, ranks));
    job.strategies.push_back(std::move(strategy));
  }
  if (job.strategies.front().meshes.size() > 1) job.ranks = job.strategies.front().ranks();
  if (job.strategies.front().meshes.front() == job.mesh()) return absl::OkStatus();
  return absl::InvalidArgumentError("strategies[0]: mesh is not that of the job");
}

// All workers of a job must know the same shares, or they would wait for each other's elements for ever.
absl::Status AddShareWeights(const v1::PlanningOptions& planning, JobConfig& job) {
  const auto& weights = planning.share_weights();
  if (weights.empty()) return absl::OkStatus();
  constexpr const char* kField = "planning.share_weights";
  if (!job.parameter_shares)
    return absl::InvalidArgumentError(absl::StrCat(kField, " needs planning.parameter_shares"));
  if (static_cast<uint32_t>(weights.size()) != job.world_size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(kField, " has ", weights.size(), ", but the job has ", job.world_size(), " ranks"));
  }
  const uint32_t largest = *std::max_element(weights.begin(), weights.end());
  if (largest == 0) return absl::InvalidArgumentError(absl::StrCat(kField, ": all are 0"));
  if (largest > kMaxShareWeight) {
    return absl::InvalidArgumentError(
        absl::StrCat(kField, " has ", largest, ", at most ", kMaxShareWeight, " is allowed"));
  }
  job.share_weights.assign(weights.begin(), weights.end());
  return absl::OkStatus();
}

// All workers of a job must sum the same buckets.
absl::Status AddGradientBuckets(const v1::PlanningOptions& planning, JobConfig& job) {
  const uint64_t bytes = planning.gradient_bucket_bytes();
  if (bytes == 0) return absl::OkStatus();
  constexpr const char* kField = "planning.gradient_bucket_bytes";
  if (job.parameter_shares)
    return absl::InvalidArgumentError(absl::StrCat(kField, " is not for planning.parameter_shares"));
  if (bytes > kMaxBucketBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(kField, " is ", bytes, ", at most ", kMaxBucketBytes, " are allowed"));
  }
  job.gradient_bucket_bytes = static_cast<int64_t>(bytes);
  return absl::OkStatus();
}

double ValueOr(double value, double fallback) { return value != 0 ? value : fallback; }

absl::StatusOr<LearningRateConfig> LearningRateFromProto(const v1::LearningRate& rate) {
  LearningRateConfig config = {.peak = rate.peak(),
                               .minimum = rate.minimum(),
                               .warmup_iterations = rate.warmup_iterations(),
                               .decay_iterations = rate.decay_iterations(),
                               .cooldown_iterations = rate.cooldown_iterations()};
  if (rate.decay() != v1::RATE_DECAY_UNSPECIFIED) {
    PENSTOCK_ASSIGN_OR_RETURN(config.decay, RateDecayFromProto(rate.decay(), "training.learning_rate.decay"));
  }
  return config;
}

absl::StatusOr<TrainingConfig> TrainingFromProto(const v1::TrainingSpec& training) {
  const TrainingConfig defaults;
  PENSTOCK_ASSIGN_OR_RETURN(const LearningRateConfig rate, LearningRateFromProto(training.learning_rate()));
  return TrainingConfig{.seed = training.seed(),
                        .learning_rate = rate,
                        .beta1 = ValueOr(training.beta1(), defaults.beta1),
                        .beta2 = ValueOr(training.beta2(), defaults.beta2),
                        .epsilon = ValueOr(training.epsilon(), defaults.epsilon),
                        .weight_decay = training.weight_decay(),
                        .clip_norm = training.clip_norm(),
                        .checkpoint_interval = training.checkpoint_interval(),
                        .iterations = training.iterations()};
}

}  // namespace

absl::Status AddStrategy(uint32_t number, const v1::Strategy& strategy, const v1::Topology& topology,
                         JobConfig& job) {
  const std::string field = absl::StrCat("strategies[", number, "]");
  if (job.strategies.empty())
    return absl::InvalidArgumentError(absl::StrCat(field, ": the job was registered without strategies"));
  PENSTOCK_ASSIGN_OR_RETURN(StrategyConfig added,
                            StrategyOfRanks(strategy, field, job.model, job.strategies.front().ranks()));
  absl::StatusOr<Topology> placed = TopologyFromProto(topology, added.meshes);
  PENSTOCK_RETURN_IF_ERROR(AnnotateError(placed.status(), field));
  added.topology = *std::move(placed);
  if (!job.Knows(number)) {
    job.added_strategies[number] = std::make_shared<const StrategyConfig>(std::move(added));
    return absl::OkStatus();
  }
  const StrategyConfig& known =
      number < job.strategies.size() ? job.strategies[number] : *job.added_strategies.at(number);
  if (known.meshes == added.meshes && known.topology == added.topology) return absl::OkStatus();
  return absl::AbortedError(
      absl::StrCat(field,
                   " is another one than before: the planner's store was restored from a backup; "
                   "register again with a new incarnation"));
}

absl::StatusOr<JobConfig> JobFromProto(const v1::JobSpec& job) {
  const v1::Mesh& mesh = job.mesh();
  PENSTOCK_ASSIGN_OR_RETURN(const ModelConfig model, ModelFromProto(job.model()));
  PENSTOCK_RETURN_IF_ERROR(CheckMeshFor(model, mesh));
  PENSTOCK_ASSIGN_OR_RETURN(const TrainingConfig training, TrainingFromProto(job.training()));
  JobConfig config = {.job_id = job.job_id(),
                      .model = model,
                      .pipeline = mesh.pipeline(),
                      .replicas = mesh.data(),
                      .context = DegreeOr1(mesh.context()),
                      .tensor = DegreeOr1(mesh.tensor()),
                      .expert = DegreeOr1(mesh.expert()),
                      .training = training,
                      .shard_optimizer_state = job.planning().shard_optimizer_state(),
                      .parameter_shares = job.planning().parameter_shares(),
                      .first_iteration = job.first_iteration(),
                      .tasks = static_cast<uint32_t>(job.tasks_size())};
  PENSTOCK_RETURN_IF_ERROR(AddStrategies(job, config));
  PENSTOCK_RETURN_IF_ERROR(AddShareWeights(job.planning(), config));
  PENSTOCK_RETURN_IF_ERROR(AddGradientBuckets(job.planning(), config));
  return config;
}

}  // namespace penstock::worker
