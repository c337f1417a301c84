#include "worker/model/feed_forward.h"

#include <ATen/ATen.h>

#include <utility>

namespace penstock::worker {
namespace {

// What is gathered serves both layers, and is free before their products for the input.
at::Tensor GatedBackward(const FeedForwardPart& part, const TokenRows& rows, const at::Tensor& input,
                         FeedForwardMemory memory, at::Tensor middle_gradient, WeightProducts& products) {
  at::Tensor gate_gradient =
      ActivationBackward(part.activation, middle_gradient * std::exchange(memory.up, {}), memory.gate);
  at::Tensor up_gradient = middle_gradient.mul_(Activate(part.activation, std::exchange(memory.gate, {})));
  middle_gradient.reset();
  {
    const at::Tensor gathered = rows.Gather(input);
    products.Add(part.gate, gathered, gate_gradient);
    products.Add(part.up, gathered, up_gradient);
  }
  at::Tensor gradient = InputGradient(part.gate, std::exchange(gate_gradient, {}));
  gradient.add_(InputGradient(part.up, std::exchange(up_gradient, {})));
  return rows.Sum(gradient);
}

}  // namespace

at::Tensor FeedForwardForward(const FeedForwardPart& part, const TokenRows& rows, const at::Tensor& input,
                              FeedForwardMemory& memory) {
  at::Tensor gathered = rows.Gather(input);
  at::Tensor up = LinearForward(part.up, gathered);
  if (part.gated) memory.gate = LinearForward(part.gate, gathered);
  gathered.reset();
  if (part.gated) {
    memory.middle = Activate(part.activation, memory.gate).mul_(up);
    memory.up = std::move(up);
  } else if (part.activation == Activation::kRelu) {
    memory.middle = up.relu_();
  } else {
    memory.middle = Activate(part.activation, up);
    memory.up = std::move(up);
  }
  return InputsForward(part.down, rows, memory.middle);
}

at::Tensor FeedForwardBackward(const FeedForwardPart& part, const TokenRows& rows, const at::Tensor& input,
                               FeedForwardMemory memory, const at::Tensor& output_gradient,
                               WeightProducts& products) {
  at::Tensor gradient = InputsBackward(part.down, rows, memory.middle, output_gradient, products);
  if (part.gated) {
    memory.middle.reset();
    return GatedBackward(part, rows, input, std::move(memory), std::move(gradient), products);
  }
  const at::Tensor& activated = memory.up.defined() ? memory.up : memory.middle;
  gradient = ActivationBackward(part.activation, gradient, activated);
  memory = {};
  return OutputsBackward(part.up, rows, input, gradient, products);
}

}  // namespace penstock::worker
