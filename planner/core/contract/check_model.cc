#include "planner/core/contract/check_model.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "planner/core/contract/adapters.h"
#include "planner/core/contract/check_rotary.h"
#include "planner/core/contract/element_bytes.h"
#include "planner/core/contract/limits.h"
#include "planner/core/contract/model_heads.h"
#include "planner/core/contract/wrong_in_job.h"

namespace penstock::core {
namespace {

bool IsT5(const v1::ModelSpec& model) { return model.architecture() == v1::ARCHITECTURE_T5; }

// What only a T5 has.
absl::Status CheckDecoderAndPositions(const v1::ModelSpec& model) {
  constexpr uint32_t kMaxDistance = 128;
  constexpr uint32_t kFewestBuckets = 4;
  if (model.architecture() != v1::ARCHITECTURE_T5) {
    if (model.decoder_start_token() > 0)
      return Wrong("job.model.decoder_start_token", "a GPT has none; leave 0");
    if (model.relative_position_buckets() > 0)
      return Wrong("job.model.relative_position_buckets", "a GPT has none; leave 0");
    if (model.relative_position_max_distance() > 0)
      return Wrong("job.model.relative_position_max_distance", "a GPT has none; leave 0");
    if (model.tied_embeddings())
      return Wrong("job.model.tied_embeddings", "a GPT has one embedding; leave it");
    if (model.unscaled_head()) return Wrong("job.model.unscaled_head", "a GPT has no other; leave it");
    return absl::OkStatus();
  }
  if (model.unscaled_head() && !model.tied_head())
    return Wrong("job.model.unscaled_head", "only a tied_head is scaled; leave it");
  if (model.decoder_start_token() >= model.vocab())
    return Wrong("job.model.decoder_start_token",
                 absl::StrCat(model.decoder_start_token(), "; must be below vocab"));
  const uint32_t buckets =
      model.relative_position_buckets() > 0 ? model.relative_position_buckets() : kRelativePositionBuckets;
  if (buckets % 2 != 0 || buckets < kFewestBuckets)
    return Wrong("job.model.relative_position_buckets",
                 absl::StrCat(buckets, "; use an even number of at least 4"));
  const uint32_t distance =
      model.relative_position_max_distance() > 0 ? model.relative_position_max_distance() : kMaxDistance;
  if (distance <= buckets / 2)
    return Wrong("job.model.relative_position_max_distance",
                 absl::StrCat(distance, "; must be above half of relative_position_buckets, ", buckets / 2));
  return absl::OkStatus();
}

absl::Status CheckLayers(const v1::ModelSpec& model) {
  if (model.architecture() == v1::ARCHITECTURE_GPT) {
    if (model.layers() == 0) return Wrong("job.model.layers", "0; use at least 1");
    if (model.encoder_layers() > 0) return Wrong("job.model.encoder_layers", "a GPT has none; use layers");
    if (model.decoder_layers() > 0) return Wrong("job.model.decoder_layers", "a GPT has none; use layers");
  } else if (model.architecture() == v1::ARCHITECTURE_T5) {
    if (model.encoder_layers() == 0) return Wrong("job.model.encoder_layers", "0; use at least 1");
    if (model.decoder_layers() == 0) return Wrong("job.model.decoder_layers", "0; use at least 1");
    if (model.layers() > 0)
      return Wrong("job.model.layers", "leave 0 for T5; use encoder_layers and decoder_layers");
  } else {
    return Wrong("job.model.architecture", "is not set; use GPT or T5");
  }
  return absl::OkStatus();
}

absl::Status CheckNorm(const v1::ModelSpec& model) {
  if (!v1::Norm_IsValid(model.norm())) return Wrong("job.model.norm", "is unknown; use LAYER or RMS");
  const double epsilon = model.norm_epsilon();
  if (!(epsilon >= 0 && epsilon <= 1))  // NaN is not
    return Wrong("job.model.norm_epsilon", absl::StrCat(epsilon, "; use 0 to 1"));
  if (!v1::NormPlacement_IsValid(model.norm_placement()))
    return Wrong("job.model.norm_placement", "is unknown; use BEFORE, AFTER or BOTH");
  if (IsT5(model) && model.norm_placement() > v1::NORM_PLACEMENT_BEFORE)
    return Wrong("job.model.norm_placement", "a T5 has its norms BEFORE; leave it");
  if (model.offset_norms() && (IsT5(model) || model.norm() != v1::NORM_RMS))
    return Wrong("job.model.offset_norms", "is of a GPT with NORM_RMS; leave it");
  if (IsT5(model) && model.head_norms()) return Wrong("job.model.head_norms", "a T5 has none; leave it");
  if (IsT5(model) && model.joint_head_norms())
    return Wrong("job.model.joint_head_norms", "a T5 has none; leave it");
  if (model.joint_head_norms() && model.head_norms())
    return Wrong("job.model.joint_head_norms", "not together with head_norms; set one of them");
  return absl::OkStatus();
}

bool IsFactor(double value) { return value >= 0 && value <= std::numeric_limits<double>::max(); }

absl::Status CheckCaps(const v1::ModelSpec& model) {
  if (!IsFactor(model.score_cap()))
    return Wrong("job.model.score_cap", absl::StrCat(model.score_cap(), "; must be finite and at least 0"));
  if (!IsFactor(model.logit_cap()))
    return Wrong("job.model.logit_cap", absl::StrCat(model.logit_cap(), "; must be finite and at least 0"));
  if (IsT5(model) && model.score_cap() > 0) return Wrong("job.model.score_cap", "a T5 has none; leave 0");
  if (IsT5(model) && model.logit_cap() > 0) return Wrong("job.model.logit_cap", "a T5 has none; leave 0");
  const double clip = model.query_key_value_clip();
  if (!IsFactor(clip))
    return Wrong("job.model.query_key_value_clip", absl::StrCat(clip, "; must be finite and at least 0"));
  if (IsT5(model) && clip > 0) return Wrong("job.model.query_key_value_clip", "a T5 has none; leave 0");
  return absl::OkStatus();
}

// Some of a model's layers.
absl::Status CheckListedLayers(const std::string& field,
                               const google::protobuf::RepeatedField<uint32_t>& layers,
                               const v1::ModelSpec& model) {
  uint32_t before = 0;
  for (const uint32_t layer : layers) {
    if (layer <= before)
      return Wrong(field, absl::StrCat(layer, " behind ", before, "; count from 1, and ascend"));
    if (layer > model.layers())
      return Wrong(field, absl::StrCat(layer, "; the model has ", model.layers(), " layers"));
    before = layer;
  }
  return absl::OkStatus();
}

absl::Status CheckWindowlessLayers(const v1::ModelSpec& model) {
  constexpr char kField[] = "job.model.windowless_layers";
  if (model.windowless_layers_size() == 0) return absl::OkStatus();
  if (model.attention_window() == 0) return Wrong(kField, "without an attention_window; leave them");
  if (model.windowless_interval() > 0)
    return Wrong(kField, "not together with windowless_interval; set one of them");
  return CheckListedLayers(kField, model.windowless_layers(), model);
}

absl::Status CheckWindow(const v1::ModelSpec& model) {
  const uint32_t window = model.attention_window();
  if (IsT5(model) && window > 0) return Wrong("job.model.attention_window", "a T5 has none; leave 0");
  if (window > kMostSequenceLength)
    return Wrong("job.model.attention_window", absl::StrCat(window, "; use at most ", kMostSequenceLength));
  if (window == 0 && model.windowless_interval() > 0)
    return Wrong("job.model.windowless_interval", "without an attention_window; leave 0");
  PENSTOCK_RETURN_IF_ERROR(CheckWindowlessLayers(model));
  const double theta = model.window_rotary_theta();
  if (theta == 0) return absl::OkStatus();
  if (!std::isfinite(theta) || theta < 1)
    return Wrong("job.model.window_rotary_theta", absl::StrCat(theta, "; must be finite and at least 1"));
  if (window == 0) return Wrong("job.model.window_rotary_theta", "without an attention_window; leave 0");
  if (model.position() != v1::POSITION_ROTARY)
    return Wrong("job.model.window_rotary_theta", "is for POSITION_ROTARY alone; leave 0");
  if (model.rotary().scaling() == v1::ROTARY_SCALING_LONGROPE)
    return Wrong("job.model.window_rotary_theta", "not together with the LONGROPE scaling; leave 0");
  return absl::OkStatus();
}

// Norms, biases and heads.
absl::Status CheckParts(const v1::ModelSpec& model) {
  PENSTOCK_RETURN_IF_ERROR(CheckNorm(model));
  if (!v1::Biases_IsValid(model.attention_biases()))
    return Wrong("job.model.attention_biases", "is unknown; use NONE, ALL or QUERY_KEY_VALUE");
  if (!v1::Biases_IsValid(model.feed_forward_biases()) ||
      model.feed_forward_biases() == v1::BIASES_QUERY_KEY_VALUE)
    return Wrong("job.model.feed_forward_biases", "use NONE or ALL");
  if (model.key_value_heads() == 0) return absl::OkStatus();
  if (IsT5(model) && model.key_value_heads() != model.heads())
    return Wrong("job.model.key_value_heads", "a T5 has as many as heads; leave 0");
  if (model.heads() % model.key_value_heads() == 0) return absl::OkStatus();
  return Wrong("job.model.key_value_heads",
               absl::StrCat(model.key_value_heads(), "; must divide heads, ", model.heads()));
}

absl::Status CheckMultipliers(const v1::ModelSpec& model) {
  if (IsT5(model) && model.has_multipliers())
    return Wrong("job.model.multipliers", "a T5 has none; leave them");
  const v1::Multipliers& multipliers = model.multipliers();
  for (const double factor :
       {multipliers.embedding(), multipliers.residual(), multipliers.attention(), multipliers.logits()}) {
    if (!IsFactor(factor))
      return Wrong("job.model.multipliers", absl::StrCat(factor, "; use finite numbers of at least 0"));
  }
  if (model.positionless_interval() > 0 && model.position() != v1::POSITION_ROTARY)
    return Wrong("job.model.positionless_interval", "only rotary positions can be left out; leave 0");
  return absl::OkStatus();
}

absl::Status CheckNoExperts(const v1::ModelSpec& model) {
  if (model.experts_per_token() > 0) return Wrong("job.model.experts_per_token", "without experts; leave 0");
  if (model.normalised_experts()) return Wrong("job.model.normalised_experts", "without experts; leave it");
  if (model.shared_expert_ffn() > 0) return Wrong("job.model.shared_expert_ffn", "without experts; leave 0");
  if (model.gated_shared_expert()) return Wrong("job.model.gated_shared_expert", "without experts; leave it");
  if (model.router_balance_loss() != 0)
    return Wrong("job.model.router_balance_loss", "without experts; leave 0");
  if (model.router_z_loss() != 0) return Wrong("job.model.router_z_loss", "without experts; leave 0");
  if (model.expert_capacity_factor() != 0)
    return Wrong("job.model.expert_capacity_factor", "without experts; leave 0");
  if (model.dense_layers_size() > 0)
    return Wrong("job.model.dense_layers", "without experts all layers are dense; leave them");
  if (model.dense_ffn() > 0) return Wrong("job.model.dense_ffn", "without experts it is ffn; leave 0");
  return absl::OkStatus();
}

// What stands beside the experts and their router.
absl::Status CheckBesideExperts(const v1::ModelSpec& model) {
  if (model.gated_shared_expert() && model.shared_expert_ffn() == 0)
    return Wrong("job.model.gated_shared_expert", "without a shared_expert_ffn; leave it");
  if (!IsFactor(model.router_balance_loss()))
    return Wrong("job.model.router_balance_loss",
                 absl::StrCat(model.router_balance_loss(), "; must be finite and at least 0"));
  if (!IsFactor(model.router_z_loss()))
    return Wrong("job.model.router_z_loss",
                 absl::StrCat(model.router_z_loss(), "; must be finite and at least 0"));
  if (!IsFactor(model.expert_capacity_factor()))
    return Wrong("job.model.expert_capacity_factor",
                 absl::StrCat(model.expert_capacity_factor(), "; must be finite and at least 0"));
  return absl::OkStatus();
}

absl::Status CheckDenseLayers(const v1::ModelSpec& model) {
  constexpr char kField[] = "job.model.dense_layers";
  if (model.dense_layers_size() == 0) {
    if (model.dense_ffn() > 0) return Wrong("job.model.dense_ffn", "without dense_layers; leave 0");
    return absl::OkStatus();
  }
  PENSTOCK_RETURN_IF_ERROR(CheckListedLayers(kField, model.dense_layers(), model));
  if (static_cast<uint32_t>(model.dense_layers_size()) < model.layers()) return absl::OkStatus();
  return Wrong(kField, "are all layers; leave one with experts, or leave experts 0");
}

absl::Status CheckExperts(const v1::ModelSpec& model) {
  const uint32_t experts = model.experts();
  if (experts == 0) return CheckNoExperts(model);
  if (IsT5(model)) return Wrong("job.model.experts", "a T5 has none; leave 0");
  if (model.experts_per_token() == 0 || model.experts_per_token() > experts) {
    return Wrong("job.model.experts_per_token",
                 absl::StrCat(model.experts_per_token(), "; use 1 to the experts, ", experts));
  }
  PENSTOCK_RETURN_IF_ERROR(CheckBesideExperts(model));
  PENSTOCK_RETURN_IF_ERROR(CheckDenseLayers(model));
  if (model.feed_forward_biases() == v1::BIASES_NONE) return absl::OkStatus();
  return Wrong("job.model.feed_forward_biases", "experts have none; use NONE");
}

absl::Status CheckPosition(const v1::ModelSpec& model) {
  constexpr char kField[] = "job.model.position";
  if (!v1::Position_IsValid(model.position()))
    return Wrong(kField, "is unknown; use LEARNED, ROTARY or RELATIVE_BIAS");
  const bool relative = model.position() == v1::POSITION_RELATIVE_BIAS;
  if (model.position() != v1::POSITION_UNSPECIFIED && relative != IsT5(model))
    return Wrong(kField, IsT5(model) ? "a T5 has RELATIVE_BIAS alone" : "RELATIVE_BIAS is a T5's");
  if (model.position() != v1::POSITION_ROTARY) {
    if (model.has_rotary()) return Wrong("job.model.rotary", "is for POSITION_ROTARY alone; leave it");
    return absl::OkStatus();
  }
  if (HeadWidth(model) % 2 != 0) {
    return Wrong(kField, absl::StrCat("ROTARY turns pairs of elements; the width of a head, ",
                                      HeadWidth(model), ", must be even"));
  }
  return CheckRotary(model.rotary(), HeadWidth(model));
}

}  // namespace

absl::Status CheckModel(const v1::ModelSpec& model) {
  PENSTOCK_RETURN_IF_ERROR(CheckLayers(model));
  if (model.hidden() == 0) return Wrong("job.model.hidden", "0; use at least 1");
  if (model.heads() == 0) return Wrong("job.model.heads", "0; use at least 1");
  const uint32_t inner = model.attention_inner() == 0 ? model.hidden() : model.attention_inner();
  if (inner % model.heads() != 0) return Wrong("job.model.heads", "must divide the inner width of attention");
  if (model.ffn() == 0) return Wrong("job.model.ffn", "0; use at least 1");
  if (model.vocab() < 2) return Wrong("job.model.vocab", "use at least 2");
  if (model.max_sequence_length() == 0) return Wrong("job.model.max_sequence_length", "0; use at least 1");
  if (!v1::FeedForward_IsValid(model.feed_forward()))
    return Wrong("job.model.feed_forward", "is unknown; use RELU, GELU, GATED_GELU or GATED_SILU");
  PENSTOCK_RETURN_IF_ERROR(CheckDecoderAndPositions(model));
  PENSTOCK_RETURN_IF_ERROR(CheckParts(model));
  PENSTOCK_RETURN_IF_ERROR(CheckExperts(model));
  PENSTOCK_RETURN_IF_ERROR(CheckMultipliers(model));
  PENSTOCK_RETURN_IF_ERROR(CheckCaps(model));
  PENSTOCK_RETURN_IF_ERROR(CheckWindow(model));
  PENSTOCK_RETURN_IF_ERROR(CheckAdapters(model));
  PENSTOCK_RETURN_IF_ERROR(CheckPosition(model));
  if (ElementBytes(model.dtype()) == 0)
    return Wrong("job.model.dtype", "is not set; use float64, float32 or bfloat16");
  return absl::OkStatus();
}

}  // namespace penstock::core
