#include "tests/unit/worker/divided_stages.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "tests/unit/worker/late_parameters.h"
#include "tests/unit/worker/ready_gradients.h"
#include "tests/unit/worker/tensor_slices.h"
#include "worker/comm/shard.h"
#include "worker/model/attention_shape.h"
#include "worker/program/parts.h"
#include "worker/program/share.h"

namespace penstock::worker {
namespace {

void AddToWhole(const NamedParameter& parameter, const at::Tensor& whole) {
  int64_t begin = 0;
  for (const OwnBlock& own : parameter.part.blocks) {
    const at::Tensor block = BlockOfWhole(own.block, whole);
    block.add_(parameter.gradient.flatten().narrow(0, begin, block.numel()).view(block.sizes()));
    begin += block.numel();
  }
}

// Of the tokens of a context rank those of a tensor rank: of each part some.
std::vector<int64_t> OwnOf(const std::vector<int64_t>& tokens, const MicroBatch& shape,
                           const GroupPlace& place) {
  std::vector<int64_t> ends;
  for (size_t part = 0; part < PartsOf(shape); ++part)
    ends.push_back((ends.empty() ? 0 : ends.back()) + TargetTokens(PartOf(shape, part), place));
  const auto all = static_cast<int64_t>(tokens.size());
  if (ends.empty()) ends = {all};
  std::vector<int64_t> own;
  int64_t begin = 0;
  for (const int64_t end : ends) {
    const Shard shard = ShardOf(ListedRows(begin, end, all), place.tensor, place.tensors);
    own.insert(own.end(), tokens.begin() + begin + shard.begin, tokens.begin() + begin + shard.end);
    begin = end;
  }
  return own;
}

// Puts a rank's rows of the boundary in their places.
void PlaceRows(const at::Tensor& rows, const MicroBatch& shape, const GroupPlace& place,
               const at::Tensor& whole) {
  std::vector<int64_t> places;
  for (const TokenRun& run : RunsOf(shape, Side::kTarget, place.context)) {
    for (int64_t i = run.begin; i < run.begin + run.length; ++i) places.push_back(i);
  }
  const std::vector<int64_t> own = OwnOf(places, shape, place);
  ASSERT_EQ(rows.size(0), static_cast<int64_t>(own.size()));
  whole.index_copy_(0, at::tensor(own, at::kLong), rows);
}

}  // namespace

const std::vector<Placed>& PlacedSamples() {
  static const std::vector<Placed> placed = {
      // A sample over both ranks, odd and as short as it may be, and whole ones.
      {2, {{3, 14}, {0, 5}, {1, 3}, {2, 6}, {0, 4}}, {{0, 2}, {0, 1}, {0, 2}, {1, 1}, {0, 2}}},
      // Spans of 1, 2 and 4 in one micro-batch.
      {4,
       {{4, 27}, {0, 9}, {3, 8}, {0, 8}, {2, 3}, {0, 1}, {5, 8}},
       {{0, 4}, {1, 1}, {2, 2}, {0, 4}, {0, 2}, {3, 1}, {0, 4}}},
      // Rank 0 has but whole samples, ranks 2 and 3 nothing.
      {4, {{0, 9}, {2, 8}}, {{0, 1}, {1, 1}}},
      {4, {{0, 9}, {2, 8}}, {{0, 2}, {0, 1}}},
      // Padding, which a rectangle divides too, lies on ranks that have no loss.
      {4, {{0, 28}, {0, 2}}, {{0, 4}, {0, 4}}},
  };
  return placed;
}

MicroBatch ShapeOf(const ModelConfig& config, const Placed& placed, Layout layout) {
  MicroBatch shape = MakeMicroBatch(config, placed.samples, layout);
  const std::vector<int64_t> lengths = RowLengths(shape, Side::kTarget);
  for (size_t row = 0; row < lengths.size(); ++row) {
    const Span span = placed.spans[layout == Layout::kConcatenated ? 2 * row : row];
    const bool divided = lengths[row] >= 2 * int64_t{span.ranks};
    shape.spans.push_back(divided ? span : Span{span.first, 1});
  }
  return shape;
}

RankPipeline::RankPipeline(const ModelConfig& config, const std::vector<uint32_t>& layers, StageGroup& group)
    : config_(config), layers_(layers), group_(group) {
  for (uint32_t i = 0; i < layers.size(); ++i) {
    stages_.push_back(*MakeTransformerStage(config, StageRangeOf(layers, i), kRankSeed, at::kCPU, group));
  }
}

void RankPipeline::Run(const MicroBatch& shape, const Tokens& ids, const TestPipeline::Options& options,
                       double loss_tokens) {
  std::vector<StageForward> forwards;
  at::Tensor activation;
  for (uint32_t i = 0; i < stages_.size(); ++i) {
    const TokenNeeds needs = TokenNeedsOf(config_, StageRangeOf(layers_, i));
    const auto tokens = MakeTokenBatch(shape, ids, config_, needs, at::kCPU, group_.place());
    ASSERT_TRUE(tokens.ok()) << tokens.status();
    const auto layers = static_cast<int32_t>(layers_[i]);
    LayerRecompute recompute = {.full = std::min(options.recompute.full, layers)};
    recompute.selective = std::min(options.recompute.selective, layers - recompute.full);
    LateParameters late(*stages_[i]);
    auto forward = stages_[i]->Forward(shape, *tokens, activation, recompute, loss_tokens, late.Listener());
    ASSERT_TRUE(forward.ok()) << forward.status();
    late.Check(layers_[i]);
    activation = std::exchange(forward->output, at::Tensor());
    if (i + 1 < stages_.size()) boundary_ = activation;
    forwards.push_back(*std::move(forward));
  }
  loss_ += activation.item<double>();
  Backward(std::move(forwards), options);
  for (const auto& stage : stages_) {
    const RouterLosses losses = stage->TakeRouterLosses();
    router_losses_.balance += losses.balance;
    router_losses_.z += losses.z;
  }
}

Result RankPipeline::result() const {
  Result result{loss_, {}, router_losses_.balance, router_losses_.z};
  for (const auto& stage : stages_) {
    for (const NamedParameter& parameter : stage->parameters()) {
      at::Tensor& sum = result.gradients[parameter.name];
      if (!sum.defined()) sum = at::zeros(parameter.part.whole_shape, parameter.gradient.options());
      AddToWhole(parameter, sum);
    }
  }
  return result;
}

void RankPipeline::BlindRouters() {
  for (const auto& stage : stages_) {
    for (const NamedParameter& parameter : stage->parameters()) {
      if (parameter.name.ends_with(".router.weight")) parameter.value.zero_();
    }
  }
}

void RankPipeline::Backward(std::vector<StageForward> forwards, const TestPipeline::Options& options) {
  at::Tensor gradient;
  for (size_t i = stages_.size(); i-- > 0;) {
    if (!options.split_backward) {
      ReadyGradients ready(*stages_[i]);
      const auto backward =
          stages_[i]->Backward(std::move(forwards[i]), gradient, options.beside, ready.Listener());
      ASSERT_TRUE(backward.ok()) << backward.status();
      ready.Check(layers_[i]);
      gradient = *backward;
      continue;
    }
    auto split = stages_[i]->BackwardInput(std::move(forwards[i]), gradient, options.beside);
    ASSERT_TRUE(split.ok()) << split.status();
    gradient = split->input_gradient;
    ReadyGradients ready(*stages_[i]);
    ASSERT_TRUE(stages_[i]->BackwardWeight(std::move(split->put_aside), ready.Listener()).ok());
    ready.Check(layers_[i]);
  }
}

Whole RunWhole(const ModelConfig& config, const Placed& placed, Layout layout,
               const std::vector<uint32_t>& layers) {
  RankPipeline pipeline(config, layers, SoleRank());
  pipeline.Run(MakeMicroBatch(config, placed.samples, layout), MakeTokens(placed.samples, config.vocab), {},
               CountLossTokens(config, placed.samples));
  return {pipeline.result(), pipeline.boundary().reshape({-1, config.hidden})};
}

void Add(const Result& part, Result& sum) {
  sum.loss += part.loss;
  sum.router_balance_loss += part.router_balance_loss;
  sum.router_z_loss += part.router_z_loss;
  for (const auto& [name, gradient] : part.gradients) {
    at::Tensor& total = sum.gradients[name];
    total = total.defined() ? total + gradient : gradient;
  }
}

Whole RunDivided(const ModelConfig& config, const Placed& placed, const MicroBatch& shape,
                 const std::vector<uint32_t>& layers, const TestPipeline::Options& options, int tensors,
                 int experts) {
  const GroupPlace ranks = {.contexts = placed.contexts, .tensors = tensors, .experts = experts};
  std::vector<Whole> parts(static_cast<size_t>(ranks.ranks()));
  const auto index = [&](const GroupPlace& place) {
    return static_cast<size_t>(place.context * place.tensors + place.tensor);
  };
  RunStageGroup(ranks, [&](ThreadStageGroup& group) {
    Tokens tokens = MakeTokens(placed.samples, config.vocab);
    const std::vector<bool> needed = SamplesOn(shape, group.place().context);
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (!needed[i]) tokens[i].clear();
    }
    RankPipeline pipeline(config, layers, group);
    pipeline.Run(shape, tokens, options, CountLossTokens(config, placed.samples));
    parts[index(group.place())] = {pipeline.result(), pipeline.boundary()};
  });
  Whole whole;
  if (config.architecture == Architecture::kGpt) {
    whole.boundary = at::zeros({TargetTokens(shape), config.hidden}, ToScalarType(config.dtype));
  }
  for (int context = 0; context < ranks.contexts; ++context) {
    for (int tensor = 0; tensor < tensors; ++tensor) {
      const GroupPlace place = {context, ranks.contexts, tensor, tensors};
      Add(parts[index(place)].result, whole.result);
      if (whole.boundary.defined()) PlaceRows(parts[index(place)].boundary, shape, place, whole.boundary);
    }
  }
  return whole;
}

Whole RunDivided(const ModelConfig& config, const Placed& placed, Layout layout,
                 const std::vector<uint32_t>& layers, const TestPipeline::Options& options, int tensors,
                 int experts) {
  return RunDivided(config, placed, ShapeOf(config, placed, layout), layers, options, tensors, experts);
}

double Difference(const Whole& left, const Whole& right) {
  const at::Tensor other = right.boundary.to(at::kDouble);
  const double boundary =
      ((left.boundary.to(at::kDouble) - other).abs().max() / other.abs().max()).item<double>();
  return std::max(boundary, RelativeDifference(left.result, right.result));
}

}  // namespace penstock::worker
