// Token embedding, with learned positions where the model has them.
#pragma once

#include <ATen/core/Tensor.h>

#include "worker/model/linear.h"
#include "worker/model/token_batch.h"

namespace penstock::worker {

struct EmbeddingPart {
  // [vocab, hidden]
  Parameter token;
  // [positions, hidden]; undefined where the model has none.
  Parameter position;
};

// [tokens, hidden]
at::Tensor EmbeddingForward(const EmbeddingPart& part, const TokenSequence& tokens);

// Adds to the parameters' gradients.
void EmbeddingBackward(const EmbeddingPart& part, const TokenSequence& tokens,
                       const at::Tensor& output_gradient);

}  // namespace penstock::worker
