// Stages from their numbers of layers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "planner/core/topology/stage.h"

namespace penstock::core {

// Encoder layers first; none in a GPT. A boundary carries the decoder's activation once a decoder layer lies
// before it.
inline std::vector<Stage> MakeStages(absl::Span<const uint32_t> layers_per_stage, uint32_t encoder_layers) {
  std::vector<Stage> stages;
  uint32_t encoders_left = encoder_layers;
  uint32_t decoders_before = 0;
  for (const uint32_t layers : layers_per_stage) {
    Stage stage;
    const uint32_t encoders = std::min(layers, encoders_left);
    encoders_left -= encoders;
    stage.encoder_layers = static_cast<int32_t>(encoders);
    stage.decoder_layers = static_cast<int32_t>(layers - encoders);
    stage.embeds_target = decoders_before == 0 && layers > encoders;
    decoders_before += layers - encoders;
    stage.encoder_boundary = decoders_before == 0;
    stage.crosses = encoder_layers > 0;
    stages.push_back(stage);
  }
  stages.front().first = true;
  stages.front().embeds_source = encoder_layers > 0;
  stages.back().last = true;
  return stages;
}

}  // namespace penstock::core
