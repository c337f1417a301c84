// An expert that every token goes through beside its own (Qwen2-MoE, Yang et al. 2024, "Qwen2 technical
// report", section 2.2.2): a feed-forward part, whose result may be multiplied by sigmoid(g x). Tensor ranks
// divide it as a dense part, also where ranks divide the experts; all have the whole g.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "worker/model/feed_forward.h"
#include "worker/model/linear.h"

namespace penstock::worker {

struct SharedExpertPart {
  // Without biases.
  FeedForwardPart part;
  // g, [1, hidden], without bias.
  std::optional<LinearPart> gate;
};

struct SharedExpertMemory {
  // As of FeedForwardMemory.
  FeedForwardMemory part;
  // [tokens, 1], in the type of sums: sigmoid(g x). Undefined without a gate.
  at::Tensor share;
};

// Adds what the expert makes of tokens to the sum of their experts, `result`. `tokens` and `result`: of those
// that the rank routes (experts.h). Where these are all of the context rank the tensor ranks add up what they
// get, else it is added up here.
void AddSharedExpert(const SharedExpertPart& part, const TokenRows& rows, const at::Tensor& tokens,
                     SharedExpertMemory& memory, at::Tensor& result);

// The same of gradients: of the result, to that of `tokens`, `gradient`. Uses `memory` up.
void AddSharedExpertBackward(const SharedExpertPart& part, const TokenRows& rows, const at::Tensor& tokens,
                             SharedExpertMemory memory, const at::Tensor& output_gradient,
                             WeightProducts& products, at::Tensor& gradient);

}  // namespace penstock::worker
