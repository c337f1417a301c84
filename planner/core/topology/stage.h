// A stage: consecutive layers of the model.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "planner/core/topology/layer_kind.h"

namespace penstock::core {

// Consecutive layers on one rank; a rank may have several. GPT layers are those of a decoder, whatever their
// kind.
struct Stage {
  int32_t encoder_layers = 0;
  int32_t decoder_layers = 0;
  // Of a model with experts: which of its layers have none, from 0, ascending.
  std::vector<int32_t> dense = {};
  // The last one has the LM head and the loss.
  bool first = false;
  bool last = false;
  // The first stage embeds source tokens (T5). The first one with a decoder layer embeds target tokens; a
  // GPT's first stage is that.
  bool embeds_source = false;
  bool embeds_target = false;
  // True when what it sends onwards is the encoder's activation alone (T5).
  bool encoder_boundary = false;
  // Whether the model's decoder layers see an encoder's output (T5).
  bool crosses = false;

  int32_t layers() const { return encoder_layers + decoder_layers; }
  int32_t count(LayerKind kind) const {
    const auto dense_layers = static_cast<int32_t>(dense.size());
    switch (kind) {
      case kEncoder:
        return encoder_layers;
      case kDecoder:
        return decoder_layers - dense_layers;
      case kDense:
        return dense_layers;
      default:
        return last ? 1 : 0;
    }
  }
  bool has(LayerKind kind) const { return count(kind) > 0; }
  // Of the lowest so many layers.
  int32_t count_below(LayerKind kind, int32_t layers) const {
    const int32_t encoders = std::min(layers, encoder_layers);
    if (kind == kEncoder) return encoders;
    const auto dense_layers =
        static_cast<int32_t>(std::lower_bound(dense.begin(), dense.end(), layers) - dense.begin());
    return kind == kDense ? dense_layers : layers - encoders - dense_layers;
  }
  int32_t embeddings() const { return (embeds_source ? 1 : 0) + (embeds_target ? 1 : 0); }
  // Whether its micro-batches need tokens: to embed, or for the loss.
  bool loads() const { return embeds_source || embeds_target || last; }
};

}  // namespace penstock::core
