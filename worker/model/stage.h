// One pipeline stage of a GPT: embedding (first stage), pre-norm blocks with causal attention, final norm, LM
// head and loss (last stage). Knows nothing of pipelines, communication or programs.
//
//   GptStage stage(config, StageRange{.first_layer = 0, .layers = 2, .first = true, .last = false}, seed,
//   device); StageForward forward = stage.Forward(shape, tokens, {}, /*full_recompute_layers=*/0);
//   ... send forward.output ...
//   at::Tensor input_gradient = stage.Backward(std::move(forward), output_gradient);
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "worker/program/program.h"

namespace penstock::worker {

// Which part of the model a stage holds.
struct StageRange {
  int64_t first_layer = 0;
  int64_t layers = 0;
  bool first = false;
  bool last = false;
};

// Tokens of a micro-batch, int64. Padded: [rows, length]; packed: [tokens].
struct TokenBatch {
  at::Tensor inputs;     // token ids; 0 in padding
  at::Tensor positions;  // position of each token in its sample
  // The next token where the loss counts it, -100 elsewhere (only the last stage needs it).
  at::Tensor labels;
};

// What a stage keeps of a micro-batch between forward and backward. Move-only in spirit: pass it on to
// Backward.
struct StageForward {
  // Leaf that the graph starts from; undefined on the first stage. [rows, length, hidden] or [tokens,
  // hidden].
  at::Tensor input;
  // Not the last stage: the activation to send. Last stage: the scalar loss (sum over labels / loss_tokens).
  at::Tensor output;
};

struct NamedParameter {
  // Independent of the pipeline split, such as "layers.3.attention.query.weight".
  std::string name;
  at::Tensor value;
};

class GptStage {
 public:
  // Initial values are a function of (seed, parameter name, shape) alone: the same model for every split.
  GptStage(const ModelConfig& config, const StageRange& range, uint64_t seed, at::Device device);
  ~GptStage();
  GptStage(const GptStage&) = delete;
  GptStage& operator=(const GptStage&) = delete;

  // `input`: the activation received from the previous stage; undefined on the first stage. `loss_tokens`: of
  // the global batch (last stage). The first `full_recompute_layers` layers keep only their input. Throws
  // c10::Error.
  StageForward Forward(const MicroBatch& shape, const TokenBatch& tokens, const at::Tensor& input,
                       int64_t full_recompute_layers, double loss_tokens);

  // Adds to the gradients of the parameters and returns the gradient of the input (undefined on the first
  // stage). `output_gradient` is undefined on the last stage. Throws c10::Error.
  at::Tensor Backward(StageForward forward, const at::Tensor& output_gradient);

  // In a fixed order. Gradients are in value.grad(), defined after the first Backward.
  const std::vector<NamedParameter>& parameters() const;

 private:
  struct Model;
  std::unique_ptr<Model> model_;
};

}  // namespace penstock::worker
