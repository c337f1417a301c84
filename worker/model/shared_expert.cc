#include "worker/model/shared_expert.h"

#include <ATen/ATen.h>

#include <utility>

#include "worker/torch/data_type.h"

namespace penstock::worker {
namespace {

// Of g x, [tokens, 1], in the type of the activations. <result, gradient> of a token is <middle, gradient of
// middle>: the result need not be made again.
at::Tensor GateGradient(const SharedExpertMemory& memory, const at::Tensor& middle_gradient) {
  const at::Tensor along =
      (memory.part.middle * middle_gradient).sum(-1, /*keepdim=*/true, memory.share.scalar_type());
  return along.mul_(memory.share * (1 - memory.share)).to(middle_gradient.scalar_type());
}

// Through the activation and the way up.
at::Tensor UpBackward(const FeedForwardPart& part, const at::Tensor& tokens, FeedForwardMemory memory,
                      at::Tensor middle_gradient, WeightProducts& products) {
  if (!part.gated) {
    // A ReLU's result says what its input would.
    const at::Tensor& activated = memory.up.defined() ? memory.up : memory.middle;
    const at::Tensor gradient = ActivationBackward(part.activation, middle_gradient, activated);
    return LinearBackward(part.up, tokens, gradient, products);
  }
  const at::Tensor gate =
      ActivationBackward(part.activation, middle_gradient * std::exchange(memory.up, {}), memory.gate);
  const at::Tensor up = middle_gradient.mul_(Activate(part.activation, std::exchange(memory.gate, {})));
  return LinearBackward(part.gate, tokens, gate, products)
      .add_(LinearBackward(part.up, tokens, up, products));
}

// [tokens, hidden] of all tokens of the context rank to what this tensor rank's part of the expert makes of
// them, a tensor of its own: the sum over the tensor ranks is the result.
at::Tensor PartForward(const SharedExpertPart& part, const at::Tensor& tokens, SharedExpertMemory& memory) {
  // One rank's part of a feed-forward part, of rows that it has: nothing is gathered or summed.
  const TokenRows whole = {.tokens = tokens.size(0)};
  at::Tensor result = FeedForwardForward(part.part, whole, tokens, memory.part);
  if (!part.gate.has_value()) return result;
  const at::Tensor scores = LinearForward(*part.gate, tokens);
  memory.share = scores.to(AccumulationType(scores.scalar_type())).sigmoid();
  return result.mul_(memory.share.to(result.scalar_type()));
}

// The same of gradients: of all tokens' results, to this rank's part of that of `tokens`.
at::Tensor PartBackward(const SharedExpertPart& part, const at::Tensor& tokens, SharedExpertMemory memory,
                        const at::Tensor& output_gradient, WeightProducts& products) {
  at::Tensor middle_gradient = InputGradient(part.part.down, output_gradient);
  at::Tensor of_gate;
  at::Tensor down_gradient = output_gradient;
  if (part.gate.has_value()) {
    const at::Tensor share = memory.share.to(output_gradient.scalar_type());
    of_gate = GateGradient(memory, middle_gradient);
    middle_gradient.mul_(share);
    down_gradient = output_gradient * share;
  }
  products.Add(part.part.down, memory.part.middle, down_gradient);
  at::Tensor gradient =
      UpBackward(part.part, tokens, std::move(memory.part), std::move(middle_gradient), products);
  if (of_gate.defined()) gradient.add_(LinearBackward(*part.gate, tokens, of_gate, products));
  return gradient;
}

// Whether the tokens that a rank routes are all of its context rank.
bool RoutesAllTokens(const GroupPlace& place) { return place.experts == 1 || place.tensors == 1; }

}  // namespace

void AddSharedExpert(const SharedExpertPart& part, const TokenRows& rows, const at::Tensor& tokens,
                     SharedExpertMemory& memory, at::Tensor& result) {
  if (RoutesAllTokens(rows.group->place())) {
    result.add_(PartForward(part, tokens, memory));
  } else {
    result.add_(rows.Sum(PartForward(part, rows.Gather(tokens), memory)));
  }
}

void AddSharedExpertBackward(const SharedExpertPart& part, const TokenRows& rows, const at::Tensor& tokens,
                             SharedExpertMemory memory, const at::Tensor& output_gradient,
                             WeightProducts& products, at::Tensor& gradient) {
  if (RoutesAllTokens(rows.group->place())) {
    gradient.add_(PartBackward(part, tokens, std::move(memory), output_gradient, products));
  } else {
    gradient.add_(rows.Sum(
        PartBackward(part, rows.Gather(tokens), std::move(memory), rows.Gather(output_gradient), products)));
  }
}

}  // namespace penstock::worker
