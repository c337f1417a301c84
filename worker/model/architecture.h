// What kind of Transformer a model is, as values that the parts of a stage are made of: two families differ
// in these values and in nothing else.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker/model/feed_forward.h"
#include "worker/model/norm.h"
#include "worker/program/program.h"

namespace penstock::worker {

// Consecutive layers of one kind.
struct LayerStack {
  // Of the parameters' names: "layers", "encoder", "decoder".
  std::string name;
  // Of the embedding's: "embedding", "decoder.embedding".
  std::string embedding;
  // Places among the layers of the model.
  int64_t first_layer = 0;
  int64_t layers = 0;
  bool causal = false;
  // Attends to the output of the stack before it.
  bool cross = false;
  // Ends with a norm of its own, which the last stack's head does not count as: that is "final_norm".
  bool final_norm = false;
};

struct ModelArchitecture {
  NormKind norm = NormKind::kLayer;
  double norm_epsilon = 1e-5;
  // Where each part of a layer has one.
  bool norm_before = true;
  bool norm_after = false;
  // Whether the linear layers have a bias that make queries, keys and values, the one behind attention, and
  // those of the feed-forward part.
  bool query_key_value_bias = false;
  bool attention_output_bias = false;
  bool feed_forward_bias = false;
  // Scores are divided by the root of a head's width.
  bool scaled_scores = false;
  Position position = Position::kLearned;
  Activation activation = Activation::kGelu;
  bool gated = false;
  // Factor of what the head reads.
  double head_scale = 1;
  // In the order of the layers. The last is the one that predicts tokens.
  std::vector<LayerStack> stacks;
};

ModelArchitecture ArchitectureOf(const ModelConfig& config);

// Inner width of attention: `attention_inner`, or `hidden` where that is 0.
int64_t AttentionInner(const ModelConfig& config);

// Heads of keys and values, the width of a head, and that of all heads of keys.
int64_t KeyValueHeads(const ModelConfig& config);
int64_t HeadWidth(const ModelConfig& config);
int64_t KeyValueInner(const ModelConfig& config);

// Of the layer with this number in its stack, from 0: tokens that one of its tokens sees, 0 for all; and
// whether it turns queries and keys.
int64_t WindowOf(const ModelConfig& config, int64_t layer);
bool HasPositions(const ModelConfig& config, int64_t layer);

// Of the layer with this number: whether it has experts.
bool HasExperts(const ModelConfig& config, int64_t layer);

// Inner width of the feed-forward part of layers without experts.
int64_t DenseWidth(const ModelConfig& config);

// Models that are made of one kind of this one's layers alone: of those with experts, if it has such, and of
// those without.
ModelConfig WithExpertsEverywhere(const ModelConfig& config);
ModelConfig WithoutExperts(const ModelConfig& config);

// Name of the token embedding of a stack.
std::string TokenTableOf(const LayerStack& stack);

}  // namespace penstock::worker
