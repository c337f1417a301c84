#include "worker/model/architecture.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace penstock::worker {
namespace {

constexpr double kLayerNormEpsilon = 1e-5;
constexpr double kRmsNormEpsilon = 1e-6;

bool IsGpt(const ModelConfig& config) { return config.architecture == Architecture::kGpt; }

Activation ActivationOf(FeedForward feed_forward) {
  switch (feed_forward) {
    case FeedForward::kRelu:
      return Activation::kRelu;
    case FeedForward::kGelu:
    case FeedForward::kGatedGelu:
      return Activation::kGelu;
    case FeedForward::kGatedSilu:
      return Activation::kSilu;
  }
  return Activation::kGelu;
}

void SetNorm(const ModelConfig& config, ModelArchitecture& result) {
  const Norm norm = config.norm.value_or(IsGpt(config) ? Norm::kLayer : Norm::kRms);
  result.norm = norm == Norm::kLayer ? NormKind::kLayer : NormKind::kRms;
  result.norm_epsilon = norm == Norm::kLayer ? kLayerNormEpsilon : kRmsNormEpsilon;
  if (config.norm_epsilon > 0) result.norm_epsilon = config.norm_epsilon;
  result.norm_before = config.norm_placement != NormPlacement::kAfter;
  result.norm_after = config.norm_placement != NormPlacement::kBefore;
}

void SetBiases(const ModelConfig& config, ModelArchitecture& result) {
  const Biases usual = IsGpt(config) ? Biases::kAll : Biases::kNone;
  const Biases attention = config.attention_biases.value_or(usual);
  result.query_key_value_bias = attention != Biases::kNone;
  result.attention_output_bias = attention == Biases::kAll;
  result.feed_forward_bias = config.feed_forward_biases.value_or(usual) == Biases::kAll;
}

std::vector<LayerStack> StacksOf(const ModelConfig& config) {
  if (IsGpt(config)) {
    return {{.name = "layers", .embedding = "embedding", .layers = config.layers, .causal = true}};
  }
  return {{.name = "encoder", .embedding = "embedding", .layers = config.encoder_layers, .final_norm = true},
          {.name = "decoder",
           .embedding = config.tied_embeddings ? "embedding" : "decoder.embedding",
           .first_layer = config.encoder_layers,
           .layers = config.layers - config.encoder_layers,
           .causal = true,
           .cross = true}};
}

// Whether the layer is one of every so-many-th, counted from 1; of none where the interval is 0.
bool IsNth(int64_t layer, int64_t interval) { return interval > 0 && (layer + 1) % interval == 0; }

}  // namespace

ModelArchitecture ArchitectureOf(const ModelConfig& config) {
  ModelArchitecture result;
  result.activation = ActivationOf(config.feed_forward);
  result.gated =
      config.feed_forward == FeedForward::kGatedGelu || config.feed_forward == FeedForward::kGatedSilu;
  result.scaled_scores = IsGpt(config);
  result.position = config.position.value_or(IsGpt(config) ? Position::kLearned : Position::kRelativeBias);
  // Raffel et al. 2020 tie a table of deviation 1, which is too large for a head.
  if (!IsGpt(config) && config.tied_head && !config.unscaled_head) {
    result.head_scale = 1 / std::sqrt(static_cast<double>(config.hidden));
  }
  if (IsGpt(config)) result.head_scale = 1 / config.multipliers.logits;
  SetNorm(config, result);
  SetBiases(config, result);
  result.stacks = StacksOf(config);
  return result;
}

int64_t AttentionInner(const ModelConfig& config) {
  return config.attention_inner == 0 ? config.hidden : config.attention_inner;
}

int64_t KeyValueHeads(const ModelConfig& config) {
  return config.key_value_heads == 0 ? config.heads : config.key_value_heads;
}

int64_t HeadWidth(const ModelConfig& config) { return AttentionInner(config) / config.heads; }

int64_t KeyValueInner(const ModelConfig& config) { return KeyValueHeads(config) * HeadWidth(config); }

int64_t WindowOf(const ModelConfig& config, int64_t layer) {
  const std::vector<int64_t>& windowless = config.windowless_layers;
  const bool named = std::binary_search(windowless.begin(), windowless.end(), layer);
  return named || IsNth(layer, config.windowless_interval) ? 0 : config.attention_window;
}

bool HasPositions(const ModelConfig& config, int64_t layer) {
  return !IsNth(layer, config.positionless_interval);
}

bool HasExperts(const ModelConfig& config, int64_t layer) {
  const std::vector<int64_t>& dense = config.dense_layers;
  return config.experts > 0 && !std::binary_search(dense.begin(), dense.end(), layer);
}

int64_t DenseWidth(const ModelConfig& config) { return config.dense_ffn > 0 ? config.dense_ffn : config.ffn; }

ModelConfig WithExpertsEverywhere(const ModelConfig& config) {
  ModelConfig model = config;
  model.dense_layers = {};
  model.dense_ffn = 0;
  return model;
}

ModelConfig WithoutExperts(const ModelConfig& config) {
  ModelConfig model = WithExpertsEverywhere(config);
  model.ffn = DenseWidth(config);
  model.experts = 0;
  model.experts_per_token = 0;
  model.normalised_experts = false;
  model.shared_expert_ffn = 0;
  model.gated_shared_expert = false;
  model.router_balance_loss = 0;
  model.router_z_loss = 0;
  model.expert_capacity_factor = 0;
  return model;
}

std::string TokenTableOf(const LayerStack& stack) { return stack.embedding + ".token.weight"; }

}  // namespace penstock::worker
