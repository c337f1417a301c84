#include "worker/model/stage.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status/status_macros.h"
#include "worker/model/attention.h"
#include "worker/model/block.h"
#include "worker/model/graph.h"
#include "worker/model/loss_head.h"
#include "worker/torch/boundary.h"
#include "worker/torch/data_type.h"

namespace penstock::worker {

// The graph of a micro-batch is cut into pieces: [embedding] | recomputed layers, one by one | the rest.
// Without recomputed layers there is one piece.
struct StageGraph {
  AttentionShape shape;
  // First stage with recomputed layers.
  GraphEnd embedding;
  // Inputs of the recomputed layers.
  std::vector<at::Tensor> recompute_inputs;
  // What the last piece begins and ends with; undefined where it begins with the tokens.
  at::Tensor leaf;
  GraphEnd end;
  // Last stage: the gradient of the final norm's output.
  at::Tensor hidden_gradient;
  std::vector<int64_t> output_sizes;
};

struct GptStage::Model {
  ModelConfig config;
  StageRange range;
  at::Device device = at::kCPU;
  std::vector<NamedParameter> parameters;
  // Views of the above.
  at::Tensor token_embedding;
  at::Tensor position_embedding;
  std::vector<BlockParameters> blocks;
  at::Tensor final_norm_weight;
  at::Tensor final_norm_bias;
  at::Tensor head_weight;

  void CreateParameters(uint64_t seed);
  void NameParts();
  absl::Status CheckForward(const MicroBatch& shape, const at::Tensor& input, int64_t recompute) const;
  at::Tensor Embed(const TokenBatch& tokens) const;
  at::Tensor Block(int64_t layer, const AttentionShape& shape, const at::Tensor& input) const;
  at::Tensor RunRecomputed(int64_t layers, at::Tensor hidden, StageGraph& graph) const;
  StageForward Forward(const MicroBatch& shape, const TokenBatch& tokens, const at::Tensor& input,
                       int64_t recompute, double loss_tokens);
  at::Tensor Finish(const at::Tensor& hidden, const TokenBatch& tokens, double loss_tokens,
                    StageGraph& graph);
  at::Tensor Backward(StageGraph& graph, const at::Tensor& output_gradient) const;
  at::Tensor BackwardRecomputed(StageGraph& graph, at::Tensor gradient) const;
};

namespace {

absl::Status CheckPositive(absl::string_view field, int64_t value) {
  if (value > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("model.", field, ": ", value, ", must be at least 1"));
}

absl::Status CheckConfig(const ModelConfig& config) {
  PENSTOCK_RETURN_IF_ERROR(CheckPositive("layers", config.layers));
  PENSTOCK_RETURN_IF_ERROR(CheckPositive("hidden", config.hidden));
  PENSTOCK_RETURN_IF_ERROR(CheckPositive("heads", config.heads));
  PENSTOCK_RETURN_IF_ERROR(CheckPositive("ffn", config.ffn));
  PENSTOCK_RETURN_IF_ERROR(CheckPositive("vocab", config.vocab));
  PENSTOCK_RETURN_IF_ERROR(CheckPositive("max_sequence_length", config.max_sequence_length));
  if (config.attention_inner < 0 || AttentionInner(config) % config.heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat("model.heads: ", config.heads,
                                                   ", must divide the inner width of attention (",
                                                   AttentionInner(config), ")"));
  }
  return absl::OkStatus();
}

absl::Status CheckRange(const ModelConfig& config, const StageRange& range) {
  if (range.first_layer >= 0 && range.layers >= 0 && range.first_layer + range.layers <= config.layers) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("stage: layers ", range.first_layer, " to ",
                                                 range.first_layer + range.layers - 1, ", but the model has ",
                                                 config.layers));
}

std::vector<int64_t> HiddenSizes(const MicroBatch& shape, int64_t hidden) {
  if (shape.layout == Layout::kPacked)
    return {shape.cu_seqlens.empty() ? 0 : shape.cu_seqlens.back(), hidden};
  return {shape.rows, shape.length, hidden};
}

int64_t LongestSample(const MicroBatch& shape) {
  if (shape.layout == Layout::kPadded) return shape.length;
  int64_t longest = 0;
  for (size_t i = 1; i < shape.cu_seqlens.size(); ++i) {
    longest = std::max<int64_t>(longest, shape.cu_seqlens[i] - shape.cu_seqlens[i - 1]);
  }
  return longest;
}

absl::Status CheckSizes(absl::string_view what, const at::Tensor& tensor, at::IntArrayRef expected) {
  if (tensor.defined() && tensor.sizes() == expected) return absl::OkStatus();
  const std::string found = tensor.defined() ? absl::StrJoin(tensor.sizes(), ", ") : "none";
  return absl::InvalidArgumentError(
      absl::StrCat(what, ": expected shape [", absl::StrJoin(expected, ", "), "], found [", found, "]"));
}

}  // namespace

void GptStage::Model::CreateParameters(uint64_t seed) {
  const at::ScalarType type = ToScalarType(config.dtype);
  for (const ParameterSpec& spec : StageParameterSpecs(config, range)) {
    NamedParameter parameter{spec.name, InitialValue(spec, seed, type, device), {}};
    parameter.gradient =
        at::zeros(spec.shape, at::TensorOptions().dtype(AccumulationType(type)).device(device));
    parameters.push_back(std::move(parameter));
  }
}

// The head's gradient is computed by hand; all others by autograd.
void GptStage::Model::NameParts() {
  size_t next = 0;
  const auto take = [&] {
    NamedParameter& parameter = parameters[next++];
    AccumulateInto(parameter.value, parameter.gradient);
    return parameter.value;
  };
  if (range.first) {
    token_embedding = take();
    position_embedding = take();
  }
  for (int64_t layer = 0; layer < range.layers; ++layer) {
    // Braces evaluate in order, which is that of StageParameterSpecs.
    blocks.push_back(BlockParameters{take(), take(), take(), take(), take(), take(), take(), take(), take(),
                                     take(), take(), take()});
  }
  if (range.last) {
    final_norm_weight = take();
    final_norm_bias = take();
    head_weight = parameters[next].value;
  }
}

absl::Status GptStage::Model::CheckForward(const MicroBatch& shape, const at::Tensor& input,
                                           int64_t recompute) const {
  if (recompute < 0 || recompute > range.layers) {
    return absl::InvalidArgumentError(
        absl::StrCat("full_recompute_layers: ", recompute, ", but the stage has ", range.layers, " layers"));
  }
  if (const int64_t longest = LongestSample(shape); longest > config.max_sequence_length) {
    return absl::InvalidArgumentError(absl::StrCat("a micro-batch of length ", longest,
                                                   ", but model.max_sequence_length is ",
                                                   config.max_sequence_length));
  }
  if (range.first) return absl::OkStatus();
  return CheckSizes("the stage's input", input, HiddenSizes(shape, config.hidden));
}

at::Tensor GptStage::Model::Embed(const TokenBatch& tokens) const {
  return at::embedding(token_embedding, tokens.inputs) + at::embedding(position_embedding, tokens.positions);
}

at::Tensor GptStage::Model::Block(int64_t layer, const AttentionShape& shape, const at::Tensor& input) const {
  return BlockForward(blocks[static_cast<size_t>(layer)], config.heads, shape, input);
}

at::Tensor GptStage::Model::RunRecomputed(int64_t layers, at::Tensor hidden, StageGraph& graph) const {
  const at::NoGradGuard no_grad;
  for (int64_t layer = 0; layer < layers; ++layer) {
    graph.recompute_inputs.push_back(hidden);
    hidden = Block(layer, graph.shape, hidden);
  }
  return hidden;
}

StageForward GptStage::Model::Forward(const MicroBatch& shape, const TokenBatch& tokens,
                                      const at::Tensor& input, int64_t recompute, double loss_tokens) {
  auto graph = std::make_shared<StageGraph>();
  graph->shape = MakeAttentionShape(shape, ToScalarType(config.dtype), device);
  at::Tensor hidden = range.first ? Embed(tokens) : input;
  if (recompute > 0) {
    if (range.first) graph->embedding = GraphEnd(hidden);
    hidden = RunRecomputed(recompute, hidden.detach(), *graph);
  }
  if (recompute > 0 || !range.first) hidden = graph->leaf = MakeLeaf(hidden);
  for (int64_t layer = recompute; layer < range.layers; ++layer) hidden = Block(layer, graph->shape, hidden);
  const at::Tensor output = Finish(hidden, tokens, loss_tokens, *graph);
  return {output, std::move(graph)};
}

at::Tensor GptStage::Model::Finish(const at::Tensor& hidden, const TokenBatch& tokens, double loss_tokens,
                                   StageGraph& graph) {
  if (!range.last) {
    graph.end = GraphEnd(hidden);
    const at::Tensor output = hidden.detach();
    graph.output_sizes = output.sizes().vec();
    return output;
  }
  const at::Tensor normalised = LayerNorm(hidden, final_norm_weight, final_norm_bias);
  graph.end = GraphEnd(normalised);
  HeadLoss head = ComputeHeadLoss(normalised, head_weight, tokens, loss_tokens, parameters.back().gradient);
  graph.hidden_gradient = std::move(head.hidden_gradient);
  return head.loss;
}

at::Tensor GptStage::Model::BackwardRecomputed(StageGraph& graph, at::Tensor gradient) const {
  while (!graph.recompute_inputs.empty()) {
    const at::Tensor leaf = MakeLeaf(graph.recompute_inputs.back());
    graph.recompute_inputs.pop_back();
    const auto layer = static_cast<int64_t>(graph.recompute_inputs.size());
    GraphEnd(Block(layer, graph.shape, leaf)).Backward(gradient);
    gradient = leaf.grad();
  }
  return gradient;
}

at::Tensor GptStage::Model::Backward(StageGraph& graph, const at::Tensor& output_gradient) const {
  graph.end.Backward(range.last ? graph.hidden_gradient : output_gradient);
  at::Tensor gradient = graph.leaf.defined() ? graph.leaf.grad() : at::Tensor();
  graph.leaf.reset();
  gradient = BackwardRecomputed(graph, gradient);
  if (graph.embedding.defined()) graph.embedding.Backward(gradient);
  return range.first ? at::Tensor() : gradient;
}

GptStage::GptStage(std::unique_ptr<Model> model) : model_(std::move(model)) {}
GptStage::~GptStage() = default;

absl::StatusOr<std::unique_ptr<GptStage>> GptStage::Create(const ModelConfig& config, const StageRange& range,
                                                           uint64_t seed, at::Device device) {
  PENSTOCK_RETURN_IF_ERROR(CheckConfig(config));
  PENSTOCK_RETURN_IF_ERROR(CheckRange(config, range));
  auto model = std::make_unique<Model>();
  model->config = config;
  model->range = range;
  model->device = device;
  PENSTOCK_RETURN_IF_ERROR(RunTorch("creating the stage's parameters", [&] {
    model->CreateParameters(seed);
    model->NameParts();
  }));
  return std::unique_ptr<GptStage>(new GptStage(std::move(model)));
}

absl::StatusOr<StageForward> GptStage::Forward(const MicroBatch& shape, const TokenBatch& tokens,
                                               const at::Tensor& input, int64_t full_recompute_layers,
                                               double loss_tokens) {
  PENSTOCK_RETURN_IF_ERROR(model_->CheckForward(shape, input, full_recompute_layers));
  return CallTorch("forward",
                   [&] { return model_->Forward(shape, tokens, input, full_recompute_layers, loss_tokens); });
}

absl::StatusOr<at::Tensor> GptStage::Backward(StageForward forward, const at::Tensor& output_gradient) {
  if (forward.graph == nullptr || !forward.graph->end.defined()) {
    return absl::InvalidArgumentError(
        "backward: this micro-batch has no graph; it was not run forward, or backward twice");
  }
  forward.output.reset();
  if (!model_->range.last) {
    PENSTOCK_RETURN_IF_ERROR(
        CheckSizes("the output's gradient", output_gradient, forward.graph->output_sizes));
  }
  return CallTorch("backward", [&] { return model_->Backward(*forward.graph, output_gradient); });
}

void GptStage::ZeroGradients() {
  for (NamedParameter& parameter : model_->parameters) parameter.gradient.zero_();
}

const std::vector<NamedParameter>& GptStage::parameters() const { return model_->parameters; }

}  // namespace penstock::worker
