// The parts of a stage, as tensors and values: made from the model's architecture, the stage's range and its
// parameters. Stages train them (transformer_stage.cc), language models run them forward alone
// (worker/inference).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "worker/model/architecture.h"
#include "worker/model/block.h"
#include "worker/model/embedding.h"
#include "worker/model/flat_parameters.h"
#include "worker/model/parameters.h"
#include "worker/model/rotary.h"
#include "worker/model/stage.h"

namespace penstock::worker {

// What the stage holds of a stack of layers. May be nothing.
struct StackPart {
  std::optional<EmbeddingPart> embedding;
  // What the layers' options point to.
  std::unique_ptr<RelativeBias> bias;
  std::unique_ptr<RotaryTable> rotary;
  // Of layers with a window, where they turn by other angles.
  std::unique_ptr<RotaryTable> window_rotary;
  std::vector<LayerPart> layers;
  // Where the parameters of each layer begin in the flat buffers.
  std::vector<int64_t> layer_begins;
  // Where they end, of the last layer with what lies behind it.
  std::vector<int64_t> layer_ends;
  std::optional<NormPart> final_norm;
};

struct StageParts {
  // T5's encoder.
  StackPart source;
  // T5's decoder, or all of a decoder-only model.
  StackPart target;
  // Last stage.
  std::optional<NormPart> final_norm;
  Parameter head;
  VocabularyPart vocabulary;
  // Factor of what the head reads.
  double head_scale = 1;
  // Logits x become cap * tanh(x / cap); 0: they stay.
  double logit_cap = 0;
};

// The parameters of StageParameterSpecs, and of AdapterSpecs where the model has adapters. The parts share
// their tensors.
struct PartParameters {
  const std::vector<NamedParameter>& model;
  const std::vector<NamedParameter>& adapters;
};

// Of a stage whose parameters these are.
PartParameters PartParametersOf(const ModelConfig& config, const FlatParameters& flat);

// `group` outlives the parts.
StageParts MakeStageParts(const ModelConfig& config, const StageRange& range,
                          const PartParameters& parameters, at::Device device,
                          StageGroup& group = SoleRank());

}  // namespace penstock::worker
