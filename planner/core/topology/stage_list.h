// Stages from their numbers of layers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "planner/core/topology/stage.h"

namespace penstock::core {

// The layers of a model, from the lowest up: so many of an encoder, then those of the decoder.
struct LayerOrder {
  uint32_t encoder_layers = 0;
  // Those without experts in a model with experts, from 0, ascending.
  std::vector<int32_t> dense = {};
};

// That the stages of a model are made of.
inline LayerOrder LayerOrderOf(absl::Span<const Stage> stages) {
  LayerOrder order;
  int32_t before = 0;
  for (const Stage& stage : stages) {
    order.encoder_layers += static_cast<uint32_t>(stage.encoder_layers);
    for (const int32_t layer : stage.dense) order.dense.push_back(before + layer);
    before += stage.layers();
  }
  return order;
}

// Encoder layers first; none in a GPT. A boundary carries the decoder's activation once a decoder layer lies
// before it.
inline std::vector<Stage> MakeStages(absl::Span<const uint32_t> layers_per_stage, const LayerOrder& order) {
  std::vector<Stage> stages;
  uint32_t encoders_left = order.encoder_layers;
  uint32_t decoders_before = 0;
  int32_t begin = 0;
  auto dense = order.dense.begin();
  for (const uint32_t layers : layers_per_stage) {
    Stage stage;
    const uint32_t encoders = std::min(layers, encoders_left);
    encoders_left -= encoders;
    stage.encoder_layers = static_cast<int32_t>(encoders);
    stage.decoder_layers = static_cast<int32_t>(layers - encoders);
    const int32_t end = begin + static_cast<int32_t>(layers);
    for (; dense != order.dense.end() && *dense < end; ++dense) stage.dense.push_back(*dense - begin);
    begin = end;
    stage.embeds_target = decoders_before == 0 && layers > encoders;
    decoders_before += layers - encoders;
    stage.encoder_boundary = decoders_before == 0;
    stage.crosses = order.encoder_layers > 0;
    stages.push_back(stage);
  }
  stages.front().first = true;
  stages.front().embeds_source = order.encoder_layers > 0;
  stages.back().last = true;
  return stages;
}

}  // namespace penstock::core
