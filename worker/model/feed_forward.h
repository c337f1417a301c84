// The feed-forward part of a layer: down(activation(up(x))), or gated down(activation(gate(x)) * up(x))
// (Shazeer, "GLU variants improve Transformer", 2020).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "worker/model/activation.h"
#include "worker/model/linear.h"
#include "worker/model/token_rows.h"

namespace penstock::worker {

struct FeedForwardPart {
  Activation activation = Activation::kGelu;
  // Gated parts have a gate.
  bool gated = false;
  // Tensor ranks divide the outputs of `up` and `gate`, and the inputs of `down`.
  LinearPart up;
  LinearPart gate;
  LinearPart down;
};

struct FeedForwardMemory {
  // Before the activation; not kept of a ReLU without gate, whose result says enough.
  at::Tensor up;
  at::Tensor gate;
  // What `down` reads.
  at::Tensor middle;
};

// [own tokens, hidden] to [own tokens, hidden], a tensor of its own.
at::Tensor FeedForwardForward(const FeedForwardPart& part, const TokenRows& rows, const at::Tensor& input,
                              FeedForwardMemory& memory);

// The gradient of the input. Uses `memory` up.
at::Tensor FeedForwardBackward(const FeedForwardPart& part, const TokenRows& rows, const at::Tensor& input,
                               FeedForwardMemory memory, const at::Tensor& output_gradient,
                               WeightProducts& products);

}  // namespace penstock::worker
