#include "worker/model/stage_checks.h"

#include <algorithm>
#include <bit>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status/status_macros.h"
#include "worker/model/attention_shape.h"
#include "worker/model/rotary.h"

namespace penstock::worker {
namespace {

absl::Status CheckPositive(absl::string_view field, int64_t value) {
  if (value > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("model.", field, ": ", value, ", must be at least 1"));
}

absl::Status CheckHeads(const ModelConfig& config) {
  if (config.attention_inner < 0 || AttentionInner(config) % config.heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat("model.heads: ", config.heads,
                                                   ", must divide the inner width of attention (",
                                                   AttentionInner(config), ")"));
  }
  if (config.key_value_heads < 0 || config.heads % KeyValueHeads(config) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("model.key_value_heads: ", config.key_value_heads,
                                                   ", must divide heads, ", config.heads));
  }
  if (ArchitectureOf(config).position == Position::kRotary && HeadWidth(config) % 2 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("model.position: rotary, but the width of a head, ", HeadWidth(config), ", is odd"));
  }
  return absl::OkStatus();
}

absl::Status CheckRotary(const ModelConfig& config) {
  if (ArchitectureOf(config).position != Position::kRotary) return absl::OkStatus();
  const int64_t width = TurningWidth(config.rotary, HeadWidth(config));
  if (width % 2 != 0 || width > HeadWidth(config)) {
    return absl::InvalidArgumentError(absl::StrCat("model.rotary.width: ", width,
                                                   ", must be even and at most the width of a head, ",
                                                   HeadWidth(config)));
  }
  if (config.rotary.scaling != RotaryScaling::kLongRope) return absl::OkStatus();
  const auto pairs = static_cast<size_t>(width / 2);
  if (config.rotary.short_factors.size() == pairs && config.rotary.long_factors.size() == pairs)
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("model.rotary.short_factors and long_factors: must be ", pairs, " each"));
}

// What an encoder-decoder has and a decoder-only model has not.
absl::Status CheckFamily(const ModelConfig& config) {
  const bool t5 = config.architecture == Architecture::kT5;
  if ((ArchitectureOf(config).position == Position::kRelativeBias) != t5)
    return absl::InvalidArgumentError("model.position: a T5 has a relative bias, and no other model has");
  if (t5 && KeyValueHeads(config) != config.heads)
    return absl::InvalidArgumentError("model.key_value_heads: a T5 has as many as heads");
  if (!t5 && config.tied_embeddings)
    return absl::InvalidArgumentError("model.tied_embeddings: a decoder-only model has one embedding");
  return absl::OkStatus();
}

absl::Status CheckDenseLayers(const ModelConfig& config) {
  int64_t before = -1;
  for (const int64_t layer : config.dense_layers) {
    if (layer <= before || layer >= config.layers)
      return absl::InvalidArgumentError(absl::StrCat("model.dense_layers: ", layer + 1, " of ", config.layers,
                                                     " layers, behind ", before + 1));
    before = layer;
  }
  if (static_cast<int64_t>(config.dense_layers.size()) < config.layers) return absl::OkStatus();
  return absl::InvalidArgumentError("model.dense_layers: are all layers; no layer has experts");
}

absl::Status CheckExperts(const ModelConfig& config) {
  if (config.experts == 0) {
    if (config.dense_layers.empty() && config.dense_ffn == 0) return absl::OkStatus();
    return absl::InvalidArgumentError("model.dense_layers and dense_ffn: are of models with experts");
  }
  if (config.experts_per_token < 1 || config.experts_per_token > config.experts) {
    return absl::InvalidArgumentError(absl::StrCat("model.experts_per_token: ", config.experts_per_token,
                                                   ", must be 1 to the experts, ", config.experts));
  }
  if (config.architecture == Architecture::kT5)
    return absl::InvalidArgumentError("model.experts: a T5 has none");
  if (ArchitectureOf(config).feed_forward_bias)
    return absl::InvalidArgumentError("model.feed_forward_biases: experts have none");
  if (config.gated_shared_expert && config.shared_expert_ffn == 0)
    return absl::InvalidArgumentError("model.gated_shared_expert: there is no shared expert");
  return CheckDenseLayers(config);
}

absl::Status CheckAdapters(const ModelConfig& config) {
  if (!config.adapters.any()) return absl::OkStatus();
  if (config.experts > 0)
    return absl::InvalidArgumentError("model.adapters: a model with experts has none; train all of it");
  if (config.adapters.targets.empty())
    return absl::InvalidArgumentError("model.adapters.targets: there are none");
  if (config.adapters.Has(LinearLayer::kGate) && !ArchitectureOf(config).gated)
    return absl::InvalidArgumentError("model.adapters.targets: the model has no gate");
  return absl::OkStatus();
}

absl::Status CheckEncoderDecoder(const ModelConfig& config) {
  if (config.encoder_layers < 1 || config.encoder_layers >= config.layers) {
    return absl::InvalidArgumentError(absl::StrCat("model.encoder_layers: ", config.encoder_layers, " of ",
                                                   config.layers,
                                                   " layers; there must be encoder and decoder layers"));
  }
  // Half of the buckets are for each direction, half of those for small distances.
  constexpr int64_t kFewestBuckets = 4;
  if (config.relative_position_buckets < kFewestBuckets || config.relative_position_buckets % 2 != 0 ||
      config.relative_position_max_distance <= config.relative_position_buckets / 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("model.relative_position_buckets: ", config.relative_position_buckets,
                     ", must be even, at least 4, and below twice the relative_position_max_distance of ",
                     config.relative_position_max_distance));
  }
  return absl::OkStatus();
}

// What of the model so many tensor ranks cannot divide; empty where they can.
std::string TensorFault(const ModelConfig& config, int64_t tensors) {
  const int64_t key_value_heads = KeyValueHeads(config);
  if (config.heads % tensors != 0) return absl::StrCat("model.heads: ", config.heads);
  if (key_value_heads % tensors != 0 && tensors % key_value_heads != 0)
    return absl::StrCat("model.key_value_heads: ", key_value_heads);
  if (config.ffn % tensors != 0) return absl::StrCat("model.ffn: ", config.ffn);
  if (DenseWidth(config) % tensors != 0) return absl::StrCat("model.dense_ffn: ", DenseWidth(config));
  if (config.shared_expert_ffn % tensors != 0)
    return absl::StrCat("model.shared_expert_ffn: ", config.shared_expert_ffn);
  if (config.vocab < tensors) return absl::StrCat("model.vocab: ", config.vocab);
  return "";
}

// The greatest degree below and the least above that can divide the model. 1 can.
std::string NearestTensorRanks(const ModelConfig& config, int64_t tensors) {
  int64_t below = tensors - 1;
  while (!TensorFault(config, below).empty()) --below;
  for (int64_t above = tensors + 1; above <= config.heads; ++above) {
    if (TensorFault(config, above).empty()) return absl::StrCat(below, " and ", above);
  }
  return absl::StrCat(below);
}

}  // namespace

absl::Status CheckModelConfig(const ModelConfig& config) {
  PENSTOCK_RETURN_IF_ERROR(CheckPositive("layers", config.layers));
  PENSTOCK_RETURN_IF_ERROR(CheckPositive("hidden", config.hidden));
  PENSTOCK_RETURN_IF_ERROR(CheckPositive("heads", config.heads));
  PENSTOCK_RETURN_IF_ERROR(CheckPositive("ffn", config.ffn));
  PENSTOCK_RETURN_IF_ERROR(CheckPositive("vocab", config.vocab));
  PENSTOCK_RETURN_IF_ERROR(CheckPositive("max_sequence_length", config.max_sequence_length));
  PENSTOCK_RETURN_IF_ERROR(CheckHeads(config));
  PENSTOCK_RETURN_IF_ERROR(CheckRotary(config));
  PENSTOCK_RETURN_IF_ERROR(CheckFamily(config));
  PENSTOCK_RETURN_IF_ERROR(CheckExperts(config));
  PENSTOCK_RETURN_IF_ERROR(CheckAdapters(config));
  return config.architecture == Architecture::kT5 ? CheckEncoderDecoder(config) : absl::OkStatus();
}

absl::Status CheckStageRange(const ModelConfig& config, const StageRange& range) {
  if (range.first_layer >= 0 && range.layers >= 0 && range.first_layer + range.layers <= config.layers) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("stage: layers ", range.first_layer, " to ",
                                                 range.first_layer + range.layers - 1, ", but the model has ",
                                                 config.layers));
}

absl::Status CheckTensorRanks(const ModelConfig& config, int tensors) {
  const std::string fault = TensorFault(config, tensors);
  if (fault.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      fault, " cannot be divided over ", tensors,
      " tensor ranks; the nearest degrees that can divide the model: ", NearestTensorRanks(config, tensors)));
}

absl::Status CheckContextRanks(const ModelConfig& config, int contexts) {
  if (contexts < 1 || !std::has_single_bit(static_cast<unsigned>(contexts))) {
    return absl::InvalidArgumentError(absl::StrCat(contexts, " context ranks: expected a power of two"));
  }
  if (contexts == 1 || config.architecture == Architecture::kGpt) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(contexts, " context ranks: the samples of a T5 cannot be divided over several"));
}

absl::Status CheckExpertRanks(const ModelConfig& config, const GroupPlace& place) {
  if (place.experts == 1) return absl::OkStatus();
  const auto error = [&](const auto&... parts) {
    return absl::InvalidArgumentError(
        absl::StrCat("mesh.expert: ", place.experts, " ranks cannot divide the experts: ", parts...));
  };
  if (config.experts == 0) return error("the model has none");
  if (config.experts % place.experts != 0) return error("it does not divide their number, ", config.experts);
  if (place.experts % place.tensors != 0)
    return error("it must be a multiple of the tensor ranks, ", place.tensors);
  if (place.ranks() % place.experts != 0)
    return error("it does not divide the ranks of a stage group, ", place.ranks());
  return absl::OkStatus();
}

absl::Status CheckLengths(const ModelConfig& config, const MicroBatch& shape) {
  int64_t longest = 0;
  for (size_t i = 0; i < shape.sample_ids.size(); ++i) {
    const int64_t input = shape.input_tokens[i];
    const int64_t target = shape.target_tokens[i];
    longest = std::max(longest,
                       config.architecture == Architecture::kT5 ? std::max(input, target) : input + target);
  }
  if (longest <= config.max_sequence_length) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a micro-batch of length ", longest,
                                                 ", but model.max_sequence_length is ",
                                                 config.max_sequence_length));
}

absl::Status CheckSizes(absl::string_view what, const at::Tensor& tensor, at::IntArrayRef expected) {
  if (tensor.defined() && tensor.sizes() == expected) return absl::OkStatus();
  const std::string found = tensor.defined() ? absl::StrJoin(tensor.sizes(), ", ") : "none";
  return absl::InvalidArgumentError(
      absl::StrCat(what, ": expected shape [", absl::StrJoin(expected, ", "), "], found [", found, "]"));
}

}  // namespace penstock::worker
