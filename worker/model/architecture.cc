#include "worker/model/architecture.h"

namespace penstock::worker {
namespace {

constexpr double kGptEpsilon = 1e-5;
constexpr double kT5Epsilon = 1e-6;

}  // namespace

ModelArchitecture ArchitectureOf(const ModelConfig& config) {
  ModelArchitecture result;
  result.activation = config.feed_forward == FeedForward::kRelu ? Activation::kRelu : Activation::kGelu;
  result.gated = config.feed_forward == FeedForward::kGatedGelu;
  switch (config.architecture) {
    case Architecture::kGpt:
      result.norm_epsilon = kGptEpsilon;
      result.bias = result.scaled_scores = result.learned_positions = true;
      result.stacks = {{.name = "layers", .embedding = "embedding", .layers = config.layers, .causal = true}};
      break;
    case Architecture::kT5:
      result.norm = NormKind::kRms;
      result.norm_epsilon = kT5Epsilon;
      result.stacks = {
          {.name = "encoder", .embedding = "embedding", .layers = config.encoder_layers, .final_norm = true},
          {.name = "decoder",
           .embedding = "decoder.embedding",
           .first_layer = config.encoder_layers,
           .layers = config.layers - config.encoder_layers,
           .causal = true,
           .cross = true}};
      break;
  }
  return result;
}

int64_t AttentionInner(const ModelConfig& config) {
  return config.attention_inner == 0 ? config.hidden : config.attention_inner;
}

}  // namespace penstock::worker
