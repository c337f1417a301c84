// A stage: consecutive layers of the model.
#pragma once

#include <cstdint>

namespace penstock::core {

// Consecutive layers on one rank; a rank may have several. GPT layers count as decoder layers.
struct Stage {
  int32_t encoder_layers = 0;
  int32_t decoder_layers = 0;
  // The first stage embeds, the last has the LM head and the loss.
  bool first = false;
  bool last = false;
  // True when what it sends onwards is the encoder's activation alone (T5).
  bool encoder_boundary = false;

  int32_t layers() const { return encoder_layers + decoder_layers; }
};

}  // namespace penstock::core
