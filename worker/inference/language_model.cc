#include "worker/inference/language_model.h"

#include <ATen/ATen.h>

#include <utility>

#include "common/status/status_macros.h"
#include "worker/checkpoint/initial_values.h"
#include "worker/model/adapter_parameters.h"
#include "worker/model/cap.h"
#include "worker/model/flat_parameters.h"
#include "worker/model/parameters.h"
#include "worker/model/stage_checks.h"
#include "worker/torch/boundary.h"
#include "worker/torch/data_type.h"

namespace penstock::worker {
namespace {

StageRange WholeModel(const ModelConfig& config) {
  return {.first_layer = 0, .layers = config.layers, .first = true, .last = true};
}

at::Tensor RunLayers(const StackPart& stack, const LayerContext& context, at::Tensor hidden) {
  for (const LayerPart& layer : stack.layers) {
    LayerMemory forgotten;
    hidden = LayerForward(layer, context, hidden, Recompute::kFull, forgotten);
  }
  return hidden;
}

std::vector<NamedParameter> EmptyParameters(const std::vector<ParameterSpec>& specs,
                                            const at::TensorOptions& options) {
  std::vector<NamedParameter> parameters;
  for (const ParameterSpec& spec : specs)
    parameters.push_back({.name = spec.name, .value = at::empty(spec.shape, options), .gradient = {}});
  return parameters;
}

absl::Status ReadWhole(const std::string& checkpoint, const std::vector<NamedParameter>& parameters) {
  std::vector<TensorPiece> pieces;
  for (const NamedParameter& parameter : parameters) {
    pieces.push_back({.slice = WholeSlice(parameter.name, parameter.value.sizes().vec()),
                      .begin = 0,
                      .values = parameter.value});
  }
  return ReadInitialValues(checkpoint, pieces);
}

absl::Status CheckBase(const ModelConfig& config, const TrainedModel& trained) {
  if (config.adapters.any() == !trained.base.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(config.adapters.any()
                                        ? "the model has adapters: give --base, a checkpoint of all else"
                                        : "--base: the model has no adapters; leave it out");
}

at::Tensor Embed(const StackPart& stack, int64_t count, const TokenSequence& tokens) {
  return EmbeddingForward(*stack.embedding, {&SoleRank(), count}, tokens);
}

}  // namespace

void LanguageModel::MakeParameters() {
  const at::TensorOptions options = at::TensorOptions(ToScalarType(config_.dtype)).device(device_);
  parameters_ = EmptyParameters(StageParameterSpecs(config_, WholeModel(config_)), options);
  adapters_ = EmptyParameters(AdapterSpecs(config_, WholeModel(config_)), options);
  parts_ = MakeStageParts(config_, WholeModel(config_), {parameters_, adapters_}, device_);
}

absl::StatusOr<std::unique_ptr<LanguageModel>> LanguageModel::Load(const ModelConfig& config,
                                                                   const TrainedModel& trained,
                                                                   at::Device device) {
  PENSTOCK_RETURN_IF_ERROR(CheckModelConfig(config));
  PENSTOCK_RETURN_IF_ERROR(CheckBase(config, trained));
  std::unique_ptr<LanguageModel> model(new LanguageModel(config, device));
  PENSTOCK_RETURN_IF_ERROR(RunTorch("the model's parameters", [&] { model->MakeParameters(); }));
  const bool adapted = config.adapters.any();
  PENSTOCK_RETURN_IF_ERROR(ReadWhole(adapted ? trained.base : trained.checkpoint, model->parameters_));
  if (adapted) PENSTOCK_RETURN_IF_ERROR(ReadWhole(trained.checkpoint, model->adapters_));
  return model;
}

TokenNeeds LanguageModel::Needs(const ModelConfig& config) {
  return TokenNeedsOf(config, WholeModel(config));
}

at::Tensor LanguageModel::Encode(const TokenBatch& tokens) const {
  if (!parts_.source.embedding.has_value()) return {};
  const at::NoGradGuard no_gradients;
  const AttentionShape& shape = tokens.attention->source;
  const LayerContext context = {.attention = &shape, .cross = nullptr, .source = {}, .group = &SoleRank()};
  const at::Tensor hidden =
      RunLayers(parts_.source, context, Embed(parts_.source, shape.queries, tokens.source));
  NormStatistics forgotten;
  return NormForward(*parts_.source.final_norm, hidden, forgotten);
}

at::Tensor LanguageModel::Decode(const TokenBatch& tokens, const at::Tensor& source) const {
  const at::NoGradGuard no_gradients;
  const AttentionShape& shape = tokens.attention->target;
  const LayerContext context = {
      .attention = &shape, .cross = &tokens.attention->cross, .source = source, .group = &SoleRank()};
  return Finish(RunLayers(parts_.target, context, Embed(parts_.target, shape.queries, tokens.target)));
}

at::Tensor LanguageModel::Finish(const at::Tensor& hidden) const {
  NormStatistics forgotten;
  at::Tensor normalised = NormForward(*parts_.final_norm, hidden, forgotten);
  if (parts_.head_scale != 1) normalised.mul_(parts_.head_scale);
  return normalised;
}

at::Tensor LanguageModel::Logits(const at::Tensor& rows) const {
  at::Tensor logits = at::linear(rows, parts_.head.value).to(AccumulationType(rows.scalar_type()));
  CapInPlace(parts_.logit_cap, logits);
  return logits;
}

}  // namespace penstock::worker
