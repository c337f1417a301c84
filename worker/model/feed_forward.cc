#include "worker/model/feed_forward.h"

#include <ATen/ATen.h>

#include <utility>

namespace penstock::worker {
namespace {

constexpr const char* kTanh = "tanh";

at::Tensor Activate(Activation activation, const at::Tensor& input) {
  switch (activation) {
    case Activation::kRelu:
      return at::relu(input);
    case Activation::kGelu:
      return at::gelu(input, kTanh);
    case Activation::kSilu:
      return at::silu(input);
  }
  return {};
}

at::Tensor ActivationBackward(Activation activation, const at::Tensor& gradient, const at::Tensor& input) {
  switch (activation) {
    case Activation::kRelu:
      return at::threshold_backward(gradient, input, 0);
    case Activation::kGelu:
      return at::gelu_backward(gradient, input, kTanh);
    case Activation::kSilu:
      return at::silu_backward(gradient, input);
  }
  return {};
}

// `input`: of all tokens. This rank's part of the input's gradient.
at::Tensor GatedBackward(const FeedForwardPart& part, const at::Tensor& input, FeedForwardMemory memory,
                         at::Tensor middle_gradient, WeightProducts& products) {
  at::Tensor gate_gradient =
      ActivationBackward(part.activation, middle_gradient * std::exchange(memory.up, {}), memory.gate);
  const at::Tensor up_gradient =
      middle_gradient.mul_(Activate(part.activation, std::exchange(memory.gate, {})));
  at::Tensor gradient = LinearBackward(part.gate, input, std::exchange(gate_gradient, {}), products);
  return gradient.add_(LinearBackward(part.up, input, up_gradient, products));
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
    return rows.Sum(
        GatedBackward(part, rows.Gather(input), std::move(memory), std::move(gradient), products));
  }
  const at::Tensor& activated = memory.up.defined() ? memory.up : memory.middle;
  gradient = ActivationBackward(part.activation, gradient, activated);
  memory = {};
  return OutputsBackward(part.up, rows, input, gradient, products);
}

}  // namespace penstock::worker
