#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "worker/program/adapters_from_proto.h"
#include "worker/program/enum_from_proto.h"
#include "worker/program/from_proto.h"
#include "worker/program/require_positive.h"

namespace penstock::worker {
namespace {

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
  config.tied_embeddings = model.tied_embeddings();
  PENSTOCK_RETURN_IF_ERROR(RequirePositive(model.encoder_layers(), "model.encoder_layers"));
  PENSTOCK_RETURN_IF_ERROR(RequirePositive(model.decoder_layers(), "model.decoder_layers"));
  config.encoder_layers = model.encoder_layers();
  config.layers = config.encoder_layers + model.decoder_layers();
  return SetDecoderAndPositions(model, config);
}

// Sets `part` where the job has one of its own; what it leaves out is as the architecture has it.
template <typename Proto, typename Plain, typename Convert>
absl::Status SetPart(Proto value, absl::string_view field, const Convert& convert,
                     std::optional<Plain>& part) {
  if (value == Proto()) return absl::OkStatus();
  PENSTOCK_ASSIGN_OR_RETURN(part, convert(value, field));
  return absl::OkStatus();
}

absl::Status SetRotary(const v1::RotaryPosition& rotary, RotaryConfig& config) {
  if (rotary.theta() != 0) config.theta = rotary.theta();
  config.width = rotary.width();
  if (rotary.scaling() == v1::ROTARY_SCALING_UNSPECIFIED) return absl::OkStatus();
  PENSTOCK_ASSIGN_OR_RETURN(config.scaling, RotaryScalingFromProto(rotary.scaling(), "model.rotary.scaling"));
  config.factor = rotary.factor();
  config.low_frequency_factor = rotary.low_frequency_factor();
  config.high_frequency_factor = rotary.high_frequency_factor();
  config.original_max_sequence_length = rotary.original_max_sequence_length();
  config.beta_fast = rotary.beta_fast();
  config.beta_slow = rotary.beta_slow();
  config.truncated = rotary.truncated();
  if (rotary.attention_factor() != 0) config.attention_factor = rotary.attention_factor();
  config.short_factors.assign(rotary.short_factors().begin(), rotary.short_factors().end());
  config.long_factors.assign(rotary.long_factors().begin(), rotary.long_factors().end());
  return absl::OkStatus();
}

// What layers are made of.
absl::Status SetParts(const v1::ModelSpec& model, ModelConfig& config) {
  PENSTOCK_RETURN_IF_ERROR(SetPart(model.position(), "model.position", PositionFromProto, config.position));
  PENSTOCK_RETURN_IF_ERROR(SetPart(model.norm(), "model.norm", NormFromProto, config.norm));
  PENSTOCK_RETURN_IF_ERROR(
      SetPart(model.attention_biases(), "model.attention_biases", BiasesFromProto, config.attention_biases));
  PENSTOCK_RETURN_IF_ERROR(SetPart(model.feed_forward_biases(), "model.feed_forward_biases", BiasesFromProto,
                                   config.feed_forward_biases));
  if (model.norm_placement() != v1::NORM_PLACEMENT_UNSPECIFIED) {
    PENSTOCK_ASSIGN_OR_RETURN(config.norm_placement,
                              NormPlacementFromProto(model.norm_placement(), "model.norm_placement"));
  }
  return SetRotary(model.rotary(), config.rotary);
}

Multipliers MultipliersFromProto(const v1::Multipliers& multipliers) {
  const auto or_1 = [](double factor) { return factor > 0 ? factor : 1.0; };
  return {.embedding = or_1(multipliers.embedding()),
          .residual = or_1(multipliers.residual()),
          .attention = multipliers.attention(),
          .logits = or_1(multipliers.logits())};
}

}  // namespace

absl::StatusOr<ModelConfig> ModelFromProto(const v1::ModelSpec& model) {
  ModelConfig config = {
      .hidden = model.hidden(),
      .heads = model.heads(),
      .attention_inner = model.attention_inner() > 0 ? model.attention_inner() : model.hidden(),
      .ffn = model.ffn(),
      .vocab = model.vocab(),
      .max_sequence_length = model.max_sequence_length(),
      .norm_epsilon = model.norm_epsilon(),
      .key_value_heads = model.key_value_heads(),
      .head_norms = model.head_norms(),
      .experts = model.experts(),
      .dense_ffn = model.dense_ffn(),
      .experts_per_token = model.experts_per_token(),
      .normalised_experts = model.normalised_experts(),
      .shared_expert_ffn = model.shared_expert_ffn(),
      .gated_shared_expert = model.gated_shared_expert(),
      .router_balance_loss = model.router_balance_loss(),
      .router_z_loss = model.router_z_loss(),
      .expert_capacity_factor = model.expert_capacity_factor(),
      .tied_head = model.tied_head(),
      .multipliers = MultipliersFromProto(model.multipliers()),
      .positionless_interval = model.positionless_interval(),
      .attention_window = model.attention_window(),
      .windowless_interval = model.windowless_interval(),
      .window_rotary_theta = model.window_rotary_theta(),
      .score_cap = model.score_cap(),
      .logit_cap = model.logit_cap(),
      .offset_norms = model.offset_norms(),
      .joint_head_norms = model.joint_head_norms(),
      .query_key_value_clip = model.query_key_value_clip(),
      .unscaled_head = model.unscaled_head()};
  for (const uint32_t layer : model.windowless_layers())
    config.windowless_layers.push_back(static_cast<int64_t>(layer) - 1);
  for (const uint32_t layer : model.dense_layers())
    config.dense_layers.push_back(static_cast<int64_t>(layer) - 1);
  PENSTOCK_ASSIGN_OR_RETURN(config.architecture,
                            ArchitectureFromProto(model.architecture(), "model.architecture"));
  PENSTOCK_RETURN_IF_ERROR(SetLayers(model, config));
  PENSTOCK_RETURN_IF_ERROR(SetParts(model, config));
  if (model.has_adapters()) {
    PENSTOCK_ASSIGN_OR_RETURN(config.adapters, AdaptersFromProto(model.adapters()));
  }
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

}  // namespace penstock::worker
