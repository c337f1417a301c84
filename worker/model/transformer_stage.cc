#include "worker/model/transformer_stage.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "worker/model/adapter_parameters.h"
#include "worker/model/attention_shape.h"
#include "worker/model/boundary_shape.h"
#include "worker/model/boundary_streams.h"
#include "worker/model/loss_head.h"
#include "worker/model/part_rows.h"
#include "worker/model/stack_passes.h"
#include "worker/model/stage_checks.h"
#include "worker/model/stage_parts.h"
#include "worker/torch/boundary.h"
#include "worker/torch/data_type.h"

namespace penstock::worker {
namespace {

// A micro-batch between forward and backward.
struct MicroBatchState : StageState {
  std::shared_ptr<const MicroBatchAttention> attention;
  // What the stage embedded.
  TokenSequence source_tokens;
  TokenSequence target_tokens;
  // By part.
  std::vector<StackMemory> source_layers;
  std::vector<StackMemory> target_layers;
  // Of the encoder's final norm.
  at::Tensor final_input;
  NormStatistics final_statistics;
  // The encoder's output, where there are decoder layers.
  at::Tensor source;
  // Last stage: the gradient of the last layer's output.
  at::Tensor hidden_gradient;
  // Until the forward pass ends (StageForward).
  at::Tensor run_losses;
  PassBack back = PassBack::kComes;
  std::vector<int64_t> input_sizes;
  std::vector<int64_t> output_sizes;
  // The backward pass has run.
  bool used_up = false;

  bool back_in_parts() const { return attention->backward_in_parts(); }
};

// A micro-batch between the two halves of a split backward pass.
struct PutAsideState : StageState {
  explicit PutAsideState(WeightProducts put_aside) : products(std::move(put_aside)) {}
  WeightProducts products;
};

Recompute LevelOf(const LayerRecompute& recompute, int64_t layer) {
  if (layer < recompute.full) return Recompute::kFull;
  return layer < int64_t{recompute.full} + recompute.selective ? Recompute::kSelective : Recompute::kNone;
}

// Of the layers of a stack, `first` of the stage.
std::vector<Recompute> LevelsOf(const LayerRecompute& recompute, size_t first, size_t layers) {
  std::vector<Recompute> levels;
  for (size_t i = 0; i < layers; ++i) levels.push_back(LevelOf(recompute, static_cast<int64_t>(first + i)));
  return levels;
}

// What lies outside of layers comes with the first or the last of them.
void AwaitEmbedding(const StackPart& stack, const ParametersNeeded& needed) {
  if (needed && !stack.layer_ends.empty()) needed(stack.layer_ends.front());
}
void AwaitWithoutLayers(const ParametersNeeded& needed) {
  if (needed) needed(std::numeric_limits<int64_t>::max());
}

class TransformerStage : public Stage {
 public:
  TransformerStage(const ModelConfig& config, const StageRange& range, at::Device device, StageGroup& group)
      : config_(config), range_(range), device_(device), group_(group) {}

  void CreateParameters(std::optional<uint64_t> seed, int64_t bucket_bytes);

  absl::StatusOr<StageForward> Forward(const MicroBatch& shape, const TokenBatch& tokens,
                                       const at::Tensor& input, const LayerRecompute& recompute,
                                       double loss_tokens, const ParametersNeeded& needed) override;
  absl::StatusOr<StageForward> ForwardAlone(const MicroBatch& shape, const TokenBatch& tokens,
                                            const at::Tensor& input, double loss_tokens,
                                            const ParametersNeeded& needed) override;
  absl::StatusOr<at::Tensor> Backward(StageForward forward, const at::Tensor& output_gradient,
                                      const ProductsBeside& beside, const GradientsReady& ready) override;
  absl::StatusOr<SplitBackward> BackwardInput(StageForward forward, const at::Tensor& output_gradient,
                                              const ProductsBeside& beside) override;
  absl::Status BackwardWeight(SplitBackward::PutAside put_aside, const GradientsReady& ready) override;
  void ZeroGradients() override;
  ExpertLoads TakeExpertLoads() override;
  RouterLosses TakeRouterLosses() override;
  const FlatParameters& flat_parameters() const override { return parameters_; }

 private:
  TokenRows SourceRows(const MicroBatchState& state) const {
    return {&group_, state.attention->source.queries};
  }
  PartRows TargetRows(const MicroBatchState& state) const { return RowsOf(TargetContexts(state, {})); }
  // What the layers of each part of the micro-batch see.
  std::vector<LayerContext> SourceContexts(const MicroBatchState& state) const {
    return {{.attention = &state.attention->source, .cross = nullptr, .source = {}, .group = &group_}};
  }
  std::vector<LayerContext> TargetContexts(const MicroBatchState& state, at::Tensor source) const;
  // And of all of them together.
  LayerContext WholeTarget(const MicroBatchState& state, at::Tensor source) const {
    return {.attention = &state.attention->target,
            .cross = &state.attention->cross,
            .source = std::move(source),
            .group = &group_};
  }
  int64_t end_layer() const { return range_.first_layer + range_.layers; }

  absl::Status CheckForward(const MicroBatch& shape, const TokenBatch& tokens, const at::Tensor& input,
                            const LayerRecompute& recompute) const;
  absl::StatusOr<MicroBatchState*> CheckBackward(const StageForward& forward,
                                                 const at::Tensor& output_gradient,
                                                 const ProductsBeside& beside) const;

  at::Tensor RunForward(const MicroBatch& shape, const TokenBatch& tokens, const at::Tensor& input,
                        const LayerRecompute& recompute, double loss_tokens, const ParametersNeeded& needed,
                        MicroBatchState& state);
  // Own tokens.
  at::Tensor EmbedTarget(const TokenSequence& tokens, const MicroBatchState& state) const;
  void EmbedTargetBackward(const MicroBatchState& state, at::Tensor gradient) const;
  at::Tensor ForwardSource(at::Tensor hidden, const LayerRecompute& recompute, const ParametersNeeded& needed,
                           MicroBatchState& state) const;
  at::Tensor ForwardTarget(at::Tensor hidden, const LayerRecompute& recompute, const ParametersNeeded& needed,
                           MicroBatchState& state) const;
  at::Tensor RunHead(const at::Tensor& hidden, const TokenBatch& tokens, double loss_tokens,
                     MicroBatchState& state);

  at::Tensor RunBackward(MicroBatchState& state, const at::Tensor& output_gradient,
                         WeightProducts& products) const;
  void BackwardTarget(MicroBatchState& state, Streams& gradient, WeightProducts& products) const;
  void BackwardSource(MicroBatchState& state, at::Tensor& gradient, WeightProducts& products) const;

  const ModelConfig config_;
  const StageRange range_;
  const at::Device device_;
  StageGroup& group_;
  FlatParameters parameters_;
  StageParts parts_;
};

void TransformerStage::CreateParameters(std::optional<uint64_t> seed, int64_t bucket_bytes) {
  const at::ScalarType type = ToScalarType(config_.dtype);
  parameters_ = MakeFlatParameters(TrainedParameterSpecs(config_, range_, group_.place()), seed, type,
                                   device_, bucket_bytes);
  AddFrozenParameters(FrozenParameterSpecs(config_, range_, group_.place()), seed, type, device_,
                      &parameters_);
  parts_ = MakeStageParts(config_, range_, PartParametersOf(config_, parameters_), device_, group_);
}

absl::Status TransformerStage::CheckForward(const MicroBatch& shape, const TokenBatch& tokens,
                                            const at::Tensor& input, const LayerRecompute& recompute) const {
  if (recompute.full < 0 || recompute.selective < 0 ||
      int64_t{recompute.full} + recompute.selective > range_.layers) {
    return absl::InvalidArgumentError(absl::StrCat("recompute: ", recompute.full, " full and ",
                                                   recompute.selective,
                                                   " selective layers, but the stage has ", range_.layers));
  }
  PENSTOCK_RETURN_IF_ERROR(CheckLengths(config_, shape));
  const TokenNeeds needs = TokenNeedsOf(config_, range_);
  if (tokens.attention == nullptr || (needs.source && !tokens.source.ids.defined()) ||
      (needs.target && !tokens.target.ids.defined()) || (needs.loss && !tokens.labels.defined())) {
    return absl::InvalidArgumentError("the tokens of the micro-batch are not loaded");
  }
  if (range_.first) return absl::OkStatus();
  return CheckSizes("the stage's input", input,
                    BoundaryShape(shape, config_, range_.first_layer, group_.place()));
}

std::vector<LayerContext> TransformerStage::TargetContexts(const MicroBatchState& state,
                                                           at::Tensor source) const {
  const MicroBatchAttention& attention = *state.attention;
  std::vector<LayerContext> contexts;
  for (const AttentionShape& part : attention.target_parts)
    contexts.push_back({.attention = &part, .cross = nullptr, .source = {}, .group = &group_});
  if (contexts.empty()) contexts.push_back(WholeTarget(state, std::move(source)));
  return contexts;
}

at::Tensor TransformerStage::ForwardSource(at::Tensor hidden, const LayerRecompute& recompute,
                                           const ParametersNeeded& needed, MicroBatchState& state) const {
  const StackPart& stack = parts_.source;
  hidden = ForwardInTurn(stack, SourceContexts(state), LevelsOf(recompute, 0, stack.layers.size()),
                         std::move(hidden), state.source_layers, state.back, needed);
  if (!stack.final_norm.has_value()) return hidden;
  state.final_input = hidden;
  return NormForward(*stack.final_norm, hidden, state.final_statistics);
}

at::Tensor TransformerStage::EmbedTarget(const TokenSequence& tokens, const MicroBatchState& state) const {
  const PartRows rows = TargetRows(state);
  const std::vector<TokenSequence> of_parts = TokensOfParts(rows, tokens);
  std::vector<at::Tensor> embedded;
  for (size_t part = 0; part < rows.size(); ++part)
    embedded.push_back(EmbeddingForward(*parts_.target.embedding, rows[part], of_parts[part]));
  return JoinParts(embedded);
}

void TransformerStage::EmbedTargetBackward(const MicroBatchState& state, at::Tensor gradient) const {
  const PartRows rows = TargetRows(state);
  const std::vector<TokenSequence> tokens = TokensOfParts(rows, state.target_tokens);
  const std::vector<at::Tensor> of_parts = OwnRowsOfParts(rows, std::move(gradient));
  for (size_t part = 0; part < rows.size(); ++part)
    EmbeddingBackward(*parts_.target.embedding, rows[part], tokens[part], of_parts[part]);
}

at::Tensor TransformerStage::ForwardTarget(at::Tensor hidden, const LayerRecompute& recompute,
                                           const ParametersNeeded& needed, MicroBatchState& state) const {
  const StackPart& stack = parts_.target;
  return ForwardInTurn(stack, TargetContexts(state, state.source),
                       LevelsOf(recompute, parts_.source.layers.size(), stack.layers.size()),
                       std::move(hidden), state.target_layers, state.back, needed);
}

at::Tensor TransformerStage::RunHead(const at::Tensor& hidden, const TokenBatch& tokens, double loss_tokens,
                                     MicroBatchState& state) {
  NormStatistics statistics;
  at::Tensor normalised = NormForward(*parts_.final_norm, hidden, statistics);
  if (parts_.head_scale != 1) normalised.mul_(parts_.head_scale);
  const PartRows rows = TargetRows(state);
  normalised = GatherParts(rows, normalised);
  const bool learns = state.back == PassBack::kComes;
  HeadLoss head = ComputeHeadLoss(parts_.vocabulary, normalised, parts_.head.value, tokens, loss_tokens,
                                  parts_.head.gradient, parts_.logit_cap,
                                  learns ? HeadGradients::kMade : HeadGradients::kNotMade);
  if (learns) {
    head.hidden_gradient = SumParts(rows, head.hidden_gradient);
    if (parts_.head_scale != 1) head.hidden_gradient.mul_(parts_.head_scale);
    state.hidden_gradient = NormBackward(*parts_.final_norm, hidden, statistics, head.hidden_gradient);
  }
  if (group_.place().tensor != 0) return head.loss.zero_();
  state.run_losses = std::move(head.run_losses);
  return head.loss;
}

at::Tensor TransformerStage::RunForward(const MicroBatch& shape, const TokenBatch& tokens,
                                        const at::Tensor& input, const LayerRecompute& recompute,
                                        double loss_tokens, const ParametersNeeded& needed,
                                        MicroBatchState& state) {
  const at::NoGradGuard by_hand;
  state.attention = tokens.attention;
  if (range_.layers == 0) AwaitWithoutLayers(needed);
  Streams hidden;
  if (!range_.first) {
    state.input_sizes = input.sizes().vec();
    hidden = SplitBoundary(config_, *state.attention, group_.place(), input, range_.first_layer);
  }
  if (parts_.source.embedding.has_value()) {
    AwaitEmbedding(parts_.source, needed);
    state.source_tokens = tokens.source;
    hidden.source = EmbeddingForward(*parts_.source.embedding, SourceRows(state), tokens.source);
  }
  if (hidden.source.defined())
    hidden.source = ForwardSource(std::move(hidden.source), recompute, needed, state);
  if (parts_.target.embedding.has_value()) {
    AwaitEmbedding(parts_.target, needed);
    state.target_tokens = tokens.target;
    hidden.target = EmbedTarget(tokens.target, state);
  }
  if (!parts_.target.layers.empty()) {
    state.source = hidden.source;
    hidden.target = ForwardTarget(std::move(hidden.target), recompute, needed, state);
  }
  if (range_.last) return RunHead(hidden.target, tokens, loss_tokens, state);
  state.output_sizes = BoundaryShape(shape, config_, end_layer(), group_.place());
  return JoinStreams(config_, *state.attention, group_.place(), std::move(hidden), end_layer(),
                     state.output_sizes);
}

void TransformerStage::BackwardTarget(MicroBatchState& state, Streams& gradient,
                                      WeightProducts& products) const {
  const StackPart& stack = parts_.target;
  const std::vector<LayerContext> contexts = TargetContexts(state, std::exchange(state.source, {}));
  std::vector<StackMemory> memory = std::exchange(state.target_layers, {});
  gradient.target = state.attention->whole_backward
                        ? BackwardAtOnce(stack, contexts, WholeTarget(state, {}), std::move(memory),
                                         std::move(gradient.target), products)
                        : BackwardInTurn(stack, contexts, std::move(memory), std::move(gradient.target),
                                         gradient.source, products);
  if (stack.embedding.has_value()) EmbedTargetBackward(state, std::exchange(gradient.target, {}));
}

void TransformerStage::BackwardSource(MicroBatchState& state, at::Tensor& gradient,
                                      WeightProducts& products) const {
  const StackPart& stack = parts_.source;
  if (stack.final_norm.has_value()) {
    gradient = NormBackward(*stack.final_norm, std::exchange(state.final_input, {}), state.final_statistics,
                            gradient);
  }
  at::Tensor none;
  gradient = BackwardInTurn(stack, SourceContexts(state), std::exchange(state.source_layers, {}),
                            std::move(gradient), none, products);
  if (stack.embedding.has_value()) {
    EmbeddingBackward(*stack.embedding, SourceRows(state), state.source_tokens, std::exchange(gradient, {}));
  }
}

at::Tensor TransformerStage::RunBackward(MicroBatchState& state, const at::Tensor& output_gradient,
                                         WeightProducts& products) const {
  const at::NoGradGuard by_hand;
  state.used_up = true;
  Streams gradient;
  if (range_.last) {
    gradient.target = std::exchange(state.hidden_gradient, {});
  } else {
    gradient = SplitBoundary(config_, *state.attention, group_.place(), output_gradient, end_layer());
  }
  if (gradient.target.defined()) BackwardTarget(state, gradient, products);
  if (gradient.source.defined()) BackwardSource(state, gradient.source, products);
  if (range_.first) return {};
  return JoinStreams(config_, *state.attention, group_.place(), std::move(gradient), range_.first_layer,
                     state.input_sizes);
}

absl::StatusOr<MicroBatchState*> TransformerStage::CheckBackward(const StageForward& forward,
                                                                 const at::Tensor& output_gradient,
                                                                 const ProductsBeside& beside) const {
  auto* const state = dynamic_cast<MicroBatchState*>(forward.state.get());
  if (state == nullptr || state->used_up) {
    return absl::InvalidArgumentError(
        "backward: this micro-batch has no forward pass; it was not run forward, or backward twice");
  }
  if (state->back_in_parts() && beside.any()) {
    return absl::InvalidArgumentError(
        "backward: products are named beside exchanges of a micro-batch in parts, which has its own rule");
  }
  if (!range_.last) {
    PENSTOCK_RETURN_IF_ERROR(CheckSizes("the output's gradient", output_gradient, state->output_sizes));
  }
  return state;
}

absl::StatusOr<StageForward> TransformerStage::Forward(const MicroBatch& shape, const TokenBatch& tokens,
                                                       const at::Tensor& input,
                                                       const LayerRecompute& recompute, double loss_tokens,
                                                       const ParametersNeeded& needed) {
  PENSTOCK_RETURN_IF_ERROR(CheckForward(shape, tokens, input, recompute));
  auto state = std::make_shared<MicroBatchState>();
  PENSTOCK_ASSIGN_OR_RETURN(at::Tensor output, CallTorch("forward", [&] {
                              return RunForward(shape, tokens, input, recompute, loss_tokens, needed, *state);
                            }));
  PENSTOCK_RETURN_IF_ERROR(group_.status());
  at::Tensor run_losses = std::exchange(state->run_losses, at::Tensor());
  return StageForward{std::move(output), std::move(state), std::move(run_losses)};
}

absl::StatusOr<StageForward> TransformerStage::ForwardAlone(const MicroBatch& shape, const TokenBatch& tokens,
                                                            const at::Tensor& input, double loss_tokens,
                                                            const ParametersNeeded& needed) {
  // Of each layer as little as can be, until the next one begins.
  const LayerRecompute least = {.selective = 0, .full = static_cast<int32_t>(range_.layers)};
  PENSTOCK_RETURN_IF_ERROR(CheckForward(shape, tokens, input, least));
  MicroBatchState state;
  state.back = PassBack::kDoesNotCome;
  PENSTOCK_ASSIGN_OR_RETURN(at::Tensor output, CallTorch("forward", [&] {
                              return RunForward(shape, tokens, input, least, loss_tokens, needed, state);
                            }));
  PENSTOCK_RETURN_IF_ERROR(group_.status());
  return StageForward{std::move(output), nullptr, std::move(state.run_losses)};
}

absl::StatusOr<at::Tensor> TransformerStage::Backward(StageForward forward, const at::Tensor& output_gradient,
                                                      const ProductsBeside& beside,
                                                      const GradientsReady& ready) {
  forward.output.reset();
  PENSTOCK_ASSIGN_OR_RETURN(MicroBatchState* const state, CheckBackward(forward, output_gradient, beside));
  WeightProducts products =
      state->back_in_parts() ? WeightProducts::NowInParts(ready) : WeightProducts::Now(ready, beside);
  PENSTOCK_ASSIGN_OR_RETURN(at::Tensor input_gradient, CallTorch("backward", [&] {
                              return RunBackward(*state, output_gradient, products);
                            }));
  PENSTOCK_RETURN_IF_ERROR(group_.status());
  return input_gradient;
}

absl::StatusOr<SplitBackward> TransformerStage::BackwardInput(StageForward forward,
                                                              const at::Tensor& output_gradient,
                                                              const ProductsBeside& beside) {
  forward.output.reset();
  PENSTOCK_ASSIGN_OR_RETURN(MicroBatchState* const state, CheckBackward(forward, output_gradient, beside));
  WeightProducts products =
      state->back_in_parts() ? WeightProducts::PutAsideInParts() : WeightProducts::PutAside(beside);
  SplitBackward split;
  PENSTOCK_ASSIGN_OR_RETURN(split.input_gradient, CallTorch("backward for the input", [&] {
                              return RunBackward(*state, output_gradient, products);
                            }));
  PENSTOCK_RETURN_IF_ERROR(group_.status());
  split.put_aside = std::make_shared<PutAsideState>(std::move(products));
  return split;
}

absl::Status TransformerStage::BackwardWeight(SplitBackward::PutAside put_aside,
                                              const GradientsReady& ready) {
  auto* const state = dynamic_cast<PutAsideState*>(put_aside.get());
  if (state == nullptr) {
    return absl::InvalidArgumentError("backward for the weights: nothing of this micro-batch was put aside");
  }
  return RunTorch("backward for the weights", [&] {
    const at::NoGradGuard by_hand;
    state->products.Run(ready);
  });
}

void TransformerStage::ZeroGradients() { parameters_.gradients.zero_(); }

ExpertLoads TransformerStage::TakeExpertLoads() {
  ExpertLoads loads;
  for (const LayerPart& layer : parts_.target.layers) {
    if (layer.feed_forward.experts.has_value()) layer.feed_forward.experts->load->TakeTo(loads);
  }
  return loads;
}

RouterLosses TransformerStage::TakeRouterLosses() {
  RouterLosses sum;
  for (const LayerPart& layer : parts_.target.layers) {
    if (!layer.feed_forward.experts.has_value()) continue;
    const RouterLossSums::Values values = layer.feed_forward.experts->loss_sums->Take();
    sum.balance += values.balance;
    sum.z += values.z;
  }
  return sum;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Stage>> MakeTransformerStage(const ModelConfig& config,
                                                            const StageRange& range,
                                                            std::optional<uint64_t> seed, at::Device device,
                                                            StageGroup& group, int64_t bucket_bytes) {
  PENSTOCK_RETURN_IF_ERROR(CheckModelConfig(config));
  PENSTOCK_RETURN_IF_ERROR(CheckStageRange(config, range));
  PENSTOCK_RETURN_IF_ERROR(CheckTensorRanks(config, group.place().tensors));
  PENSTOCK_RETURN_IF_ERROR(CheckExpertRanks(config, group.place()));
  auto stage = std::make_unique<TransformerStage>(config, range, device, group);
  PENSTOCK_RETURN_IF_ERROR(
      RunTorch("creating the stage's parameters", [&] { stage->CreateParameters(seed, bucket_bytes); }));
  return stage;
}

}  // namespace penstock::worker
