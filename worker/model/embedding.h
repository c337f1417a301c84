// Token embedding, with learned positions where the model has them.
#pragma once

#include <ATen/core/Tensor.h>

#include "worker/model/linear.h"
#include "worker/model/token_batch.h"
#include "worker/model/token_rows.h"
#include "worker/model/vocabulary_part.h"

namespace penstock::worker {

struct EmbeddingPart {
  // [vocab, hidden], of which a tensor rank has some rows.
  Parameter token;
  VocabularyPart vocabulary;
  // [positions, hidden]; undefined where the model has none.
  Parameter position;
  // Of what is embedded.
  double scale = 1;
};

// `tokens`: all of the context rank. [own tokens, hidden]
at::Tensor EmbeddingForward(const EmbeddingPart& part, const TokenRows& rows, const TokenSequence& tokens);

// Adds to the parameters' gradients, where they learn.
void EmbeddingBackward(const EmbeddingPart& part, const TokenRows& rows, const TokenSequence& tokens,
                       const at::Tensor& output_gradient);

}  // namespace penstock::worker
