#include "worker/model/experts.h"

#include <ATen/ATen.h>

#include <numeric>
#include <utility>

#include "worker/model/expert_capacity.h"
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
  at::Tensor experts = routing.chosen.reshape({-1});
  const at::Tensor taken = TakenRows(rows, routing.chosen, part.count);
  // The others go behind all experts.
  if (taken.defined()) experts = experts.masked_fill(taken.reshape({-1}).logical_not(), part.count);
  routing.order = experts.argsort(/*stable=*/true, /*dim=*/0);
  routing.exchange = MeetExperts(group, experts.bincount({}, part.count + 1).narrow(0, 0, part.count));
  const std::vector<int64_t>& sent = routing.exchange.sent;
  routing.order = routing.order.narrow(0, 0, std::accumulate(sent.begin(), sent.end(), int64_t{0}));
  if (part.load != nullptr) {
    const auto ranks = static_cast<double>(group.place().experts);
    part.load->Add(routing.exchange.counts,
                   static_cast<double>(experts.size(0)) * ranks / static_cast<double>(part.count));
    if (taken.defined()) part.load->AddRouted(experts.size(0), experts.size(0) - routing.order.size(0));
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

// [rows, width] to [tokens * per_token, width]: row by row as tokens chose, with 0 for those that were not
// taken.
at::Tensor AsChosen(const Routing& routing, const at::Tensor& rows) {
  const int64_t chosen = routing.chosen.numel();
  if (rows.size(0) < chosen)
    return at::zeros({chosen, rows.size(1)}, rows.options()).index_copy_(0, routing.order, rows);
  return rows.index_select(0, routing.order.argsort(/*stable=*/true, /*dim=*/0));
}

// [rows, width] to [tokens, width]: the sum of a token's rows, each times its weight where there are any.
at::Tensor SumOfRows(const ExpertsPart& part, const Routing& routing, const at::Tensor& rows,
                     const at::Tensor& weights) {
  at::Tensor ordered = AsChosen(routing, rows).view({-1, part.per_token, rows.size(1)});
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

ExpertsForward::ExpertsForward(const ExpertsPart& part, const TokenRows& rows, ExpertsMemory& memory)
    : part_(part), rows_(rows), routed_(RoutedTokens(rows)), memory_(memory) {}

void ExpertsForward::Send(const at::Tensor& input) {
  const at::Tensor tokens = routed_.Gather(input);
  memory_.routing = Route(part_, tokens, rows_);
  const Routing& routing = memory_.routing;
  travelling_ = SendToExperts(routing.exchange, tokens.index_select(0, TokensOf(part_, routing)));
  if (!part_.shared.has_value()) return;
  // While the rows travel.
  shared_ = at::zeros_like(tokens);
  AddSharedExpert(*part_.shared, rows_, tokens, memory_.shared, shared_);
}

void ExpertsForward::Compute() {
  const Routing& routing = memory_.routing;
  const Activation activation = part_.experts.front().activation;
  {
    const at::Tensor inputs = travelling_.Wait();
    if (routing.exchange.is_divided()) memory_.inputs = inputs;
    memory_.up = Multiply(part_, routing, &FeedForwardPart::up, inputs, /*transposed=*/false);
    if (part_.experts.front().gated) {
      memory_.gate = Multiply(part_, routing, &FeedForwardPart::gate, inputs, /*transposed=*/false);
      memory_.middle = Activate(activation, memory_.gate).mul_(memory_.up);
    } else {
      memory_.middle = Activate(activation, memory_.up);
    }
  }
  travelling_ = SendFromExperts(routing.exchange, Multiply(part_, routing, &FeedForwardPart::down,
                                                           memory_.middle, /*transposed=*/false));
}

at::Tensor ExpertsForward::Finish() {
  const Routing& routing = memory_.routing;
  const at::Tensor outputs = travelling_.Wait();
  at::Tensor result = SumOfRows(part_, routing, outputs, WeightsOf(part_, routing));
  if (shared_.defined()) result.add_(std::exchange(shared_, {}));
  return routed_.Sum(result);
}

ExpertsBackward::ExpertsBackward(const ExpertsPart& part, const TokenRows& rows, const at::Tensor& input,
                                 ExpertsMemory memory, WeightProducts& products)
    : part_(part),
      rows_(rows),
      routed_(RoutedTokens(rows)),
      type_(input.scalar_type()),
      memory_(std::move(memory)),
      products_(products),
      tokens_(routed_.Gather(input)),
      token_of_row_(TokensOf(part, memory_.routing)),
      weights_(WeightsOf(part, memory_.routing)) {}

void ExpertsBackward::Send(const at::Tensor& output_gradient) {
  const Routing& routing = memory_.routing;
  const at::Tensor row_weights = weights_.reshape({-1}).index_select(0, routing.order).unsqueeze(-1);
  at::Tensor outer_gradient = routed_.Gather(output_gradient);
  travelling_ = SendToExperts(routing.exchange,
                              NumberedRows{outer_gradient.index_select(0, token_of_row_), row_weights});
  if (part_.shared.has_value()) outer_gradient_ = std::move(outer_gradient);
}

void ExpertsBackward::Compute() {
  const Routing& routing = memory_.routing;
  NumberedRows returned;
  {
    NumberedRows come = travelling_.Wait();
    at::Tensor middle_gradient =
        Multiply(part_, routing, &FeedForwardPart::down, come.rows, /*transposed=*/true);
    // <output, gradient> of a row is <middle, gradient of middle>: the output need not be made again.
    returned.numbers = (memory_.middle * middle_gradient).sum(-1, /*keepdim=*/true, weights_.scalar_type());
    const at::Tensor factor = come.numbers.to(come.rows.scalar_type());
    AddProducts(part_, routing, &FeedForwardPart::down, ProductTurn::kDown, std::exchange(memory_.middle, {}),
                come.rows.mul_(factor), products_);
    middle_gradient.mul_(factor);
    const at::Tensor inputs =
        memory_.inputs.defined() ? std::exchange(memory_.inputs, {}) : tokens_.index_select(0, token_of_row_);
    returned.rows = InwardsBackward(part_, memory_, inputs, std::move(middle_gradient), products_);
  }
  travelling_ = SendFromExperts(routing.exchange, returned);
}

at::Tensor ExpertsBackward::Finish() {
  const Routing& routing = memory_.routing;
  const NumberedRows returned = travelling_.Wait();
  // That of rows which were not taken is 0.
  at::Tensor weights_gradient = at::zeros_like(weights_);
  weights_gradient.view({-1}).index_copy_(0, routing.order, returned.numbers.squeeze(-1));
  at::Tensor gradient = SumOfRows(part_, routing, returned.rows, {});
  if (part_.shared.has_value()) {
    AddSharedExpertBackward(*part_.shared, rows_, tokens_, std::move(memory_.shared),
                            std::exchange(outer_gradient_, {}), products_, gradient);
  }
  const at::Tensor scores_gradient =
      ScoresGradient(part_, rows_, routing, std::move(weights_gradient), weights_, type_);
  products_.Add(part_.router, tokens_, scores_gradient);
  gradient.add_(scores_gradient.mm(part_.router.weight.value));
  return routed_.Sum(gradient);
}

}  // namespace penstock::worker
