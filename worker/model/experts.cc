#include "worker/model/experts.h"

#include <ATen/ATen.h>

#include <utility>

#include "worker/torch/data_type.h"

namespace penstock::worker {
namespace {

// The tokens of which this rank makes rows: its own where ranks divide the experts, else all.
TokenRows RoutedTokens(const TokenRows& rows) {
  return rows.group->place().experts == 1 ? rows : TokenRows{.tokens = rows.own().size()};
}

Routing Route(const ExpertsPart& part, const at::Tensor& tokens, const TokenRows& rows) {
  Routing routing;
  StageGroup& group = *rows.group;
  const at::Tensor scores = LinearForward(part.router, tokens);
  routing.probabilities = scores.softmax(-1, AccumulationType(scores.scalar_type()));
  routing.chosen = std::get<1>(routing.probabilities.topk(part.per_token, -1));
  routing.losses = RememberRouterLosses(part.losses, rows, scores, routing.chosen);
  const at::Tensor experts = routing.chosen.reshape({-1});
  routing.order = experts.argsort(/*stable=*/true, /*dim=*/0);
  routing.exchange = MeetExperts(group, experts.bincount({}, part.count));
  if (part.load != nullptr) {
    const auto ranks = static_cast<double>(group.place().experts);
    part.load->Add(routing.exchange.counts,
                   static_cast<double>(experts.size(0)) * ranks / static_cast<double>(part.count));
  }
  return routing;
}

// [tokens, per_token], in the type of sums.
at::Tensor WeightsOf(const ExpertsPart& part, const Routing& routing) {
  at::Tensor weights = routing.probabilities.gather(-1, routing.chosen);
  return part.normalised ? weights.div_(weights.sum(-1, /*keepdim=*/true)) : weights;
}

// The token of each row.
at::Tensor TokensOf(const ExpertsPart& part, const Routing& routing) {
  return routing.order.div(part.per_token, "floor");
}

// Calls `each` with an expert of this rank and its rows, for those that have any.
template <typename Each>
void ForEachExpert(const ExpertsPart& part, const Routing& routing, Each each) {
  int64_t begin = 0;
  for (size_t i = 0; i < part.experts.size(); ++i) {
    const int64_t count = routing.exchange.counts[i];
    if (count > 0) each(part.experts[i], begin, count);
    begin += count;
  }
}

// [rows, in] to [rows, out], by the same layer of each expert; `transposed`: the way back.
at::Tensor Multiply(const ExpertsPart& part, const Routing& routing, const LinearPart FeedForwardPart::*layer,
                    const at::Tensor& rows, bool transposed) {
  const at::Tensor& weight = (part.experts.front().*layer).weight.value;
  at::Tensor result = at::empty({rows.size(0), weight.size(transposed ? 1 : 0)}, rows.options());
  ForEachExpert(part, routing, [&](const FeedForwardPart& expert, int64_t begin, int64_t count) {
    const at::Tensor& matrix = (expert.*layer).weight.value;
    at::Tensor out = result.narrow(0, begin, count);
    at::mm_out(out, rows.narrow(0, begin, count), transposed ? matrix : matrix.t());
  });
  return result;
}

// Which of an expert's layers come first among the products for weights.
enum class ProductTurn : uint8_t { kDown, kFirstInwards, kSecondInwards };

void AddProducts(const ExpertsPart& part, const Routing& routing, const LinearPart FeedForwardPart::*layer,
                 ProductTurn turn, const at::Tensor& input, const at::Tensor& gradient,
                 WeightProducts& products) {
  const size_t first = static_cast<size_t>(turn) * part.experts.size();
  ForEachExpert(part, routing, [&](const FeedForwardPart& expert, int64_t begin, int64_t count) {
    products.AddOfExperts(first + static_cast<size_t>(&expert - part.experts.data()), expert.*layer,
                          input.narrow(0, begin, count), gradient.narrow(0, begin, count));
  });
}

// [rows, width] to [tokens, width]: the sum of a token's rows, each times its weight where there are any.
at::Tensor SumOfRows(const ExpertsPart& part, const Routing& routing, const at::Tensor& rows,
                     const at::Tensor& weights) {
  const int64_t tokens = routing.chosen.size(0);
  const at::Tensor place = routing.order.argsort(/*stable=*/true, /*dim=*/0);
  at::Tensor ordered = rows.index_select(0, place).view({tokens, part.per_token, rows.size(1)});
  if (weights.defined()) ordered.mul_(weights.to(rows.scalar_type()).unsqueeze(-1));
  return ordered.sum(1);
}

// Of the probabilities' logits, from that of the weights, [tokens, per_token].
at::Tensor ScoresGradient(const ExpertsPart& part, const TokenRows& rows, const Routing& routing,
                          at::Tensor weights_gradient, const at::Tensor& weights, at::ScalarType type) {
  if (part.normalised) {
    const at::Tensor along = (weights_gradient * weights).sum(-1, /*keepdim=*/true);
    const at::Tensor chosen = routing.probabilities.gather(-1, routing.chosen);
    weights_gradient = (weights_gradient - along).div_(chosen.sum(-1, /*keepdim=*/true));
  }
  const at::Tensor& probabilities = routing.probabilities;
  at::Tensor gradient = at::zeros_like(probabilities).scatter_(-1, routing.chosen, weights_gradient);
  const at::Tensor balance = AddBalanceGradient(part.losses, rows, routing.losses, probabilities, gradient);
  gradient = at::_softmax_backward_data(gradient, probabilities, -1, probabilities.scalar_type());
  const at::Tensor z = AddZGradient(part.losses, rows, routing.losses, probabilities, gradient);
  if (routing.losses.any() && part.loss_sums != nullptr) part.loss_sums->Add(balance, z);
  return gradient.to(type);
}

// The gradient of the rows that went into the experts.
at::Tensor InwardsBackward(const ExpertsPart& part, ExpertsMemory& memory, const at::Tensor& input,
                           at::Tensor middle_gradient, WeightProducts& products) {
  const Activation activation = part.experts.front().activation;
  const Routing& routing = memory.routing;
  if (!part.experts.front().gated) {
    const at::Tensor gradient = ActivationBackward(activation, middle_gradient, memory.up);
    AddProducts(part, routing, &FeedForwardPart::up, ProductTurn::kFirstInwards, input, gradient, products);
    return Multiply(part, routing, &FeedForwardPart::up, gradient, /*transposed=*/true);
  }
  const at::Tensor gate =
      ActivationBackward(activation, middle_gradient * std::exchange(memory.up, {}), memory.gate);
  const at::Tensor up = middle_gradient.mul_(Activate(activation, std::exchange(memory.gate, {})));
  AddProducts(part, routing, &FeedForwardPart::gate, ProductTurn::kFirstInwards, input, gate, products);
  AddProducts(part, routing, &FeedForwardPart::up, ProductTurn::kSecondInwards, input, up, products);
  return Multiply(part, routing, &FeedForwardPart::gate, gate, /*transposed=*/true)
      .add_(Multiply(part, routing, &FeedForwardPart::up, up, /*transposed=*/true));
}

}  // namespace

at::Tensor ExpertsForward(const ExpertsPart& part, const TokenRows& rows, const at::Tensor& input,
                          ExpertsMemory& memory) {
  const TokenRows routed = RoutedTokens(rows);
  at::Tensor tokens = routed.Gather(input);
  memory.routing = Route(part, tokens, rows);
  const Routing& routing = memory.routing;
  const Activation activation = part.experts.front().activation;
  {
    const at::Tensor inputs = ToExperts(routing.exchange, tokens.index_select(0, TokensOf(part, routing)));
    if (!part.shared.has_value()) tokens.reset();
    if (rows.group->place().experts > 1) memory.inputs = inputs;
    memory.up = Multiply(part, routing, &FeedForwardPart::up, inputs, /*transposed=*/false);
    if (part.experts.front().gated) {
      memory.gate = Multiply(part, routing, &FeedForwardPart::gate, inputs, /*transposed=*/false);
      memory.middle = Activate(activation, memory.gate).mul_(memory.up);
    } else {
      memory.middle = Activate(activation, memory.up);
    }
  }
  const at::Tensor outputs = FromExperts(
      routing.exchange, Multiply(part, routing, &FeedForwardPart::down, memory.middle, /*transposed=*/false));
  at::Tensor result = SumOfRows(part, routing, outputs, WeightsOf(part, routing));
  if (part.shared.has_value()) AddSharedExpert(*part.shared, rows, tokens, memory.shared, result);
  return routed.Sum(result);
}

at::Tensor ExpertsBackward(const ExpertsPart& part, const TokenRows& rows, const at::Tensor& input,
                           ExpertsMemory memory, const at::Tensor& output_gradient,
                           WeightProducts& products) {
  const TokenRows routed = RoutedTokens(rows);
  const Routing& routing = memory.routing;
  const at::Tensor tokens = routed.Gather(input);
  const at::Tensor token_of_row = TokensOf(part, routing);
  const at::Tensor weights = WeightsOf(part, routing);
  at::Tensor outer_gradient = routed.Gather(output_gradient);
  NumberedRows returned;
  {
    const at::Tensor row_weights = weights.reshape({-1}).index_select(0, routing.order).unsqueeze(-1);
    NumberedRows come =
        ToExperts(routing.exchange, NumberedRows{outer_gradient.index_select(0, token_of_row), row_weights},
                  [&] { products.RunBesideArrival(); });
    if (!part.shared.has_value()) outer_gradient.reset();
    at::Tensor middle_gradient =
        Multiply(part, routing, &FeedForwardPart::down, come.rows, /*transposed=*/true);
    // <output, gradient> of a row is <middle, gradient of middle>: the output need not be made again.
    returned.numbers = (memory.middle * middle_gradient).sum(-1, /*keepdim=*/true, weights.scalar_type());
    const at::Tensor factor = come.numbers.to(come.rows.scalar_type());
    AddProducts(part, routing, &FeedForwardPart::down, ProductTurn::kDown, std::exchange(memory.middle, {}),
                come.rows.mul_(factor), products);
    middle_gradient.mul_(factor);
    const at::Tensor inputs =
        memory.inputs.defined() ? std::exchange(memory.inputs, {}) : tokens.index_select(0, token_of_row);
    returned.rows = InwardsBackward(part, memory, inputs, std::move(middle_gradient), products);
  }
  returned = FromExperts(routing.exchange, returned, [&] { products.RunBesideReturn(); });
  at::Tensor weights_gradient = at::empty_like(weights);
  weights_gradient.view({-1}).index_copy_(0, routing.order, returned.numbers.squeeze(-1));
  at::Tensor gradient = SumOfRows(part, routing, returned.rows, {});
  if (part.shared.has_value()) {
    AddSharedExpertBackward(*part.shared, rows, tokens, std::move(memory.shared), outer_gradient, products,
                            gradient);
  }
  const at::Tensor scores_gradient =
      ScoresGradient(part, rows, routing, std::move(weights_gradient), weights, input.scalar_type());
  products.Add(part.router, tokens, scores_gradient);
  gradient.add_(scores_gradient.mm(part.router.weight.value));
  return routed.Sum(gradient);
}

}  // namespace penstock::worker
