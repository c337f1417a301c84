#include <string>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "worker/program/enum_from_proto.h"
#include "worker/program/from_proto.h"

namespace penstock::worker {
namespace {

// As the contract bounds them (job.proto, Mesh).
constexpr uint64_t kMaxRanks = 1 << 16;

absl::Status RequirePositive(uint32_t value, absl::string_view field) {
  if (value > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, " is 0: it must be positive"));
}

double ValueOr(double value, double fallback) { return value != 0 ? value : fallback; }

TrainingConfig TrainingFromProto(const v1::TrainingSpec& training) {
  const TrainingConfig defaults;
  const v1::LearningRate& rate = training.learning_rate();
  return {.seed = training.seed(),
          .learning_rate = {.peak = rate.peak(),
                            .minimum = rate.minimum(),
                            .warmup_iterations = rate.warmup_iterations(),
                            .decay_iterations = rate.decay_iterations()},
          .beta1 = ValueOr(training.beta1(), defaults.beta1),
          .beta2 = ValueOr(training.beta2(), defaults.beta2),
          .epsilon = ValueOr(training.epsilon(), defaults.epsilon),
          .weight_decay = training.weight_decay(),
          .clip_norm = training.clip_norm(),
          .checkpoint_interval = training.checkpoint_interval(),
          .iterations = training.iterations()};
}

absl::Status SetDecoderAndPositions(const v1::ModelSpec& model, ModelConfig& config) {
  if (model.decoder_start_token() >= model.vocab()) {
    return absl::InvalidArgumentError(absl::StrCat("model.decoder_start_token is ",
                                                   model.decoder_start_token(),
                                                   ": it must be below the vocab, ", model.vocab()));
  }
  config.decoder_start_token = static_cast<int32_t>(model.decoder_start_token());
  if (model.relative_position_buckets() > 0)
    config.relative_position_buckets = model.relative_position_buckets();
  if (model.relative_position_max_distance() > 0) {
    config.relative_position_max_distance = model.relative_position_max_distance();
  }
  return absl::OkStatus();
}

// Layers, and what depends on the architecture beside them.
absl::Status SetLayers(const v1::ModelSpec& model, ModelConfig& config) {
  const bool t5 = config.architecture == Architecture::kT5;
  config.feed_forward = t5 ? FeedForward::kRelu : FeedForward::kGelu;
  if (model.feed_forward() != v1::FEED_FORWARD_UNSPECIFIED) {
    PENSTOCK_ASSIGN_OR_RETURN(config.feed_forward,
                              FeedForwardFromProto(model.feed_forward(), "model.feed_forward"));
  }
  if (!t5) {
    config.layers = model.layers();
    return RequirePositive(model.layers(), "model.layers");
  }
  PENSTOCK_RETURN_IF_ERROR(RequirePositive(model.encoder_layers(), "model.encoder_layers"));
  PENSTOCK_RETURN_IF_ERROR(RequirePositive(model.decoder_layers(), "model.decoder_layers"));
  config.encoder_layers = model.encoder_layers();
  config.layers = config.encoder_layers + model.decoder_layers();
  return SetDecoderAndPositions(model, config);
}

}  // namespace

absl::StatusOr<ModelConfig> ModelFromProto(const v1::ModelSpec& model) {
  ModelConfig config = {
      .hidden = model.hidden(),
      .heads = model.heads(),
      .attention_inner = model.attention_inner() > 0 ? model.attention_inner() : model.hidden(),
      .ffn = model.ffn(),
      .vocab = model.vocab(),
      .max_sequence_length = model.max_sequence_length()};
  PENSTOCK_ASSIGN_OR_RETURN(config.architecture,
                            ArchitectureFromProto(model.architecture(), "model.architecture"));
  PENSTOCK_RETURN_IF_ERROR(SetLayers(model, config));
  PENSTOCK_RETURN_IF_ERROR(RequirePositive(model.hidden(), "model.hidden"));
  PENSTOCK_RETURN_IF_ERROR(RequirePositive(model.heads(), "model.heads"));
  PENSTOCK_RETURN_IF_ERROR(RequirePositive(model.ffn(), "model.ffn"));
  PENSTOCK_RETURN_IF_ERROR(RequirePositive(model.vocab(), "model.vocab"));
  PENSTOCK_RETURN_IF_ERROR(RequirePositive(model.max_sequence_length(), "model.max_sequence_length"));
  PENSTOCK_ASSIGN_OR_RETURN(config.dtype, DataTypeFromProto(model.dtype(), "model.dtype"));
  if (config.attention_inner % config.heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat("model.heads is ", config.heads,
                                                   ": it must divide the inner width of attention, ",
                                                   config.attention_inner));
  }
  return config;
}

absl::StatusOr<JobConfig> JobFromProto(const v1::JobSpec& job) {
  const v1::Mesh& mesh = job.mesh();
  PENSTOCK_RETURN_IF_ERROR(RequirePositive(mesh.pipeline(), "mesh.pipeline"));
  PENSTOCK_RETURN_IF_ERROR(RequirePositive(mesh.data(), "mesh.data"));
  if (uint64_t{mesh.pipeline()} * mesh.data() > kMaxRanks) {
    return absl::InvalidArgumentError(
        absl::StrCat("mesh of ", mesh.pipeline(), " x ", mesh.data(), " is more than ", kMaxRanks, " ranks"));
  }
  if (mesh.tensor() > 1 || mesh.context() > 1) {
    return absl::UnimplementedError("mesh.tensor and mesh.context above 1 are not known to this worker");
  }
  PENSTOCK_ASSIGN_OR_RETURN(const ModelConfig model, ModelFromProto(job.model()));
  return JobConfig{.job_id = job.job_id(),
                   .model = model,
                   .pipeline = mesh.pipeline(),
                   .replicas = mesh.data(),
                   .training = TrainingFromProto(job.training()),
                   .shard_optimizer_state = job.planning().shard_optimizer_state(),
                   .first_iteration = job.first_iteration()};
}

}  // namespace penstock::worker
