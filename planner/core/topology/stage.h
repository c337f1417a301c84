// A stage: consecutive layers of the model.
#pragma once

#include <cstdint>

namespace penstock::core {

// Consecutive layers on one rank; a rank may have several. GPT layers count as decoder layers.
struct Stage {
  int32_t encoder_layers = 0;
  int32_t decoder_layers = 0;
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
  int32_t embeddings() const { return (embeds_source ? 1 : 0) + (embeds_target ? 1 : 0); }
  // Whether its micro-batches need tokens: to embed, or for the loss.
  bool loads() const { return embeds_source || embeds_target || last; }
};

}  // namespace penstock::core
