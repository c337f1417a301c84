// LM head and cross entropy in one: the loss and its gradients, without ever holding all logits.
//
// Logits of a chunk of positions are computed, turned into probabilities, and at once into gradients (the
// idea of Hsu et al., "Liger Kernel", 2024), so that memory is bounded by the chunk, and nothing is computed
// twice: three products in all, where recomputing the logits in the backward pass would take four. The price:
// the head's gradients are known, and its weight's are added, when the forward pass ends.
//
// Tensor ranks divide the vocabulary: each makes the logits of its own tokens, and exchanges of each position
// the largest one, the sum of exponentials and the logit that is asked for (Shoeybi et al., "Megatron-LM",
// 2019, section 3), never logits.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "worker/model/token_batch.h"
#include "worker/model/vocabulary_part.h"

namespace penstock::worker {

struct HeadLoss {
  // float64 scalar: sum of the cross entropy over the loss positions, each times its weight, / divisor; on
  // all tensor ranks.
  at::Tensor loss;
  // [runs] float64: of each of tokens.loss_runs, without the division; undefined where there are none.
  at::Tensor run_losses;
  // Of the shape and type of `hidden`; what comes of this rank's part of the vocabulary. Undefined without
  // gradients.
  at::Tensor hidden_gradient;
};

enum class HeadGradients : uint8_t { kMade, kNotMade };

// `hidden`: [..., hidden], after the final norm. `weight`: [vocab, hidden]. `weight_gradient`: same
// shape, of AccumulationType; added to, or undefined where the head is frozen. Softmax and loss are computed
// in AccumulationType of `hidden`.
// `logit_cap`: of cap.h.
HeadLoss ComputeHeadLoss(const at::Tensor& hidden, const at::Tensor& weight, const TokenBatch& tokens,
                         double divisor, at::Tensor& weight_gradient);
// The same of a tensor rank, of whose part of the vocabulary `weight` and its gradient are.
HeadLoss ComputeHeadLoss(const VocabularyPart& vocabulary, const at::Tensor& hidden, const at::Tensor& weight,
                         const TokenBatch& tokens, double divisor, at::Tensor& weight_gradient,
                         double logit_cap = 0, HeadGradients gradients = HeadGradients::kMade);

}  // namespace penstock::worker
