// A token embedding that a model uses more than once: as the head's matrix, or for encoder and decoder
// (job.proto, tied_head and tied_embeddings).
#pragma once

#include <cstdint>

#include "planner/core/topology/stage.h"

namespace penstock::core {

struct TokenTable {
  // The head's matrix is this table.
  bool with_head = false;
  // T5: the encoder's embedding is the decoder's.
  bool of_both_embeddings = false;
  // In the model's number format, and as its gradients are summed.
  int64_t parameter_bytes = 0;
  int64_t gradient_bytes = 0;
};

// How often the stage uses it; it holds one copy where that is not 0.
inline int UsesOf(const TokenTable& table, const Stage& stage) {
  if (!table.with_head && !table.of_both_embeddings) return 0;
  return (table.with_head && stage.last ? 1 : 0) + (stage.embeds_target ? 1 : 0) +
         (table.of_both_embeddings && stage.embeds_source ? 1 : 0);
}

}  // namespace penstock::core
