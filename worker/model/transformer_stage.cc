#include "worker/model/transformer_stage.h"

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
namespace {

// The graph of a micro-batch is cut into pieces: [embedding] | recomputed layers, one by one | the rest.
// Without recomputed layers there is one piece.
struct StageGraph : StageState {
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

struct GptModel {
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
  absl::Status CheckForward(const MicroBatch& shape, const at::Tensor& input,
                            const LayerRecompute& recompute) const;
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
    return {shape.target_cu_seqlens.empty() ? 0 : shape.target_cu_seqlens.back(), hidden};
  return {shape.rows, shape.target_length, hidden};
}

int64_t LongestSample(const MicroBatch& shape) {
  if (shape.layout == Layout::kPadded) return shape.target_length;
  int64_t longest = 0;
  for (size_t i = 1; i < shape.target_cu_seqlens.size(); ++i) {
    longest = std::max<int64_t>(longest, shape.target_cu_seqlens[i] - shape.target_cu_seqlens[i - 1]);
  }
  return longest;
}

absl::Status CheckSizes(absl::string_view what, const at::Tensor& tensor, at::IntArrayRef expected) {
  if (tensor.defined() && tensor.sizes() == expected) return absl::OkStatus();
  const std::string found = tensor.defined() ? absl::StrJoin(tensor.sizes(), ", ") : "none";
  return absl::InvalidArgumentError(
      absl::StrCat(what, ": expected shape [", absl::StrJoin(expected, ", "), "], found [", found, "]"));
}

void GptModel::CreateParameters(uint64_t seed) {
  const at::ScalarType type = ToScalarType(config.dtype);
  for (const ParameterSpec& spec : StageParameterSpecs(config, range)) {
    NamedParameter parameter{spec.name, InitialValue(spec, seed, type, device), {}};
    parameter.gradient =
        at::zeros(spec.shape, at::TensorOptions().dtype(AccumulationType(type)).device(device));
    parameters.push_back(std::move(parameter));
  }
}

// The head's gradient is computed by hand; all others by autograd.
void GptModel::NameParts() {
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

absl::Status GptModel::CheckForward(const MicroBatch& shape, const at::Tensor& input,
                                    const LayerRecompute& recompute) const {
  if (recompute.full < 0 || recompute.full > range.layers) {
    return absl::InvalidArgumentError(
        absl::StrCat("recompute: ", recompute.full, " layers, but the stage has ", range.layers));
  }
  if (const int64_t longest = LongestSample(shape); longest > config.max_sequence_length) {
    return absl::InvalidArgumentError(absl::StrCat("a micro-batch of length ", longest,
                                                   ", but model.max_sequence_length is ",
                                                   config.max_sequence_length));
  }
  if (range.first) return absl::OkStatus();
  return CheckSizes("the stage's input", input, HiddenSizes(shape, config.hidden));
}

at::Tensor GptModel::Embed(const TokenBatch& tokens) const {
  return at::embedding(token_embedding, tokens.inputs) + at::embedding(position_embedding, tokens.positions);
}

at::Tensor GptModel::Block(int64_t layer, const AttentionShape& shape, const at::Tensor& input) const {
  return BlockForward(blocks[static_cast<size_t>(layer)], config.heads, shape, input);
}

at::Tensor GptModel::RunRecomputed(int64_t layers, at::Tensor hidden, StageGraph& graph) const {
  const at::NoGradGuard no_grad;
  for (int64_t layer = 0; layer < layers; ++layer) {
    graph.recompute_inputs.push_back(hidden);
    hidden = Block(layer, graph.shape, hidden);
  }
  return hidden;
}

StageForward GptModel::Forward(const MicroBatch& shape, const TokenBatch& tokens, const at::Tensor& input,
                               int64_t recompute, double loss_tokens) {
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

at::Tensor GptModel::Finish(const at::Tensor& hidden, const TokenBatch& tokens, double loss_tokens,
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

at::Tensor GptModel::BackwardRecomputed(StageGraph& graph, at::Tensor gradient) const {
  while (!graph.recompute_inputs.empty()) {
    const at::Tensor leaf = MakeLeaf(graph.recompute_inputs.back());
    graph.recompute_inputs.pop_back();
    const auto layer = static_cast<int64_t>(graph.recompute_inputs.size());
    GraphEnd(Block(layer, graph.shape, leaf)).Backward(gradient);
    gradient = leaf.grad();
  }
  return gradient;
}

at::Tensor GptModel::Backward(StageGraph& graph, const at::Tensor& output_gradient) const {
  graph.end.Backward(range.last ? graph.hidden_gradient : output_gradient);
  at::Tensor gradient = graph.leaf.defined() ? graph.leaf.grad() : at::Tensor();
  graph.leaf.reset();
  gradient = BackwardRecomputed(graph, gradient);
  if (graph.embedding.defined()) graph.embedding.Backward(gradient);
  return range.first ? at::Tensor() : gradient;
}

class TransformerStage : public Stage {
 public:
  explicit TransformerStage(std::unique_ptr<GptModel> model) : model_(std::move(model)) {}

  absl::StatusOr<StageForward> Forward(const MicroBatch& shape, const TokenBatch& tokens,
                                       const at::Tensor& input, const LayerRecompute& recompute,
                                       double loss_tokens) override;
  absl::StatusOr<at::Tensor> Backward(StageForward forward, const at::Tensor& output_gradient) override;
  absl::StatusOr<SplitBackward> BackwardInput(StageForward forward,
                                              const at::Tensor& output_gradient) override;
  absl::Status BackwardWeight(SplitBackward::PutAside put_aside) override;
  void ZeroGradients() override;
  const std::vector<NamedParameter>& parameters() const override { return model_->parameters; }

 private:
  std::unique_ptr<GptModel> model_;
};

absl::StatusOr<StageForward> TransformerStage::Forward(const MicroBatch& shape, const TokenBatch& tokens,
                                                       const at::Tensor& input,
                                                       const LayerRecompute& recompute, double loss_tokens) {
  PENSTOCK_RETURN_IF_ERROR(model_->CheckForward(shape, input, recompute));
  return CallTorch("forward",
                   [&] { return model_->Forward(shape, tokens, input, recompute.full, loss_tokens); });
}

absl::StatusOr<at::Tensor> TransformerStage::Backward(StageForward forward,
                                                      const at::Tensor& output_gradient) {
  auto* const graph = dynamic_cast<StageGraph*>(forward.state.get());
  if (graph == nullptr || !graph->end.defined()) {
    return absl::InvalidArgumentError(
        "backward: this micro-batch has no graph; it was not run forward, or backward twice");
  }
  forward.output.reset();
  if (!model_->range.last) {
    PENSTOCK_RETURN_IF_ERROR(CheckSizes("the output's gradient", output_gradient, graph->output_sizes));
  }
  return CallTorch("backward", [&] { return model_->Backward(*graph, output_gradient); });
}

// All gradients at once, and nothing put aside.
absl::StatusOr<SplitBackward> TransformerStage::BackwardInput(StageForward forward,
                                                              const at::Tensor& output_gradient) {
  PENSTOCK_ASSIGN_OR_RETURN(at::Tensor input_gradient, Backward(std::move(forward), output_gradient));
  return SplitBackward{std::move(input_gradient), nullptr};
}

absl::Status TransformerStage::BackwardWeight(SplitBackward::PutAside) { return absl::OkStatus(); }

void TransformerStage::ZeroGradients() {
  for (NamedParameter& parameter : model_->parameters) parameter.gradient.zero_();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Stage>> MakeTransformerStage(const ModelConfig& config,
                                                            const StageRange& range, uint64_t seed,
                                                            at::Device device) {
  PENSTOCK_RETURN_IF_ERROR(CheckConfig(config));
  PENSTOCK_RETURN_IF_ERROR(CheckRange(config, range));
  auto model = std::make_unique<GptModel>();
  model->config = config;
  model->range = range;
  model->device = device;
  PENSTOCK_RETURN_IF_ERROR(RunTorch("creating the stage's parameters", [&] {
    model->CreateParameters(seed);
    model->NameParts();
  }));
  return std::make_unique<TransformerStage>(std::move(model));
}

}  // namespace penstock::worker
