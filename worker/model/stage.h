// One pipeline stage of a GPT: token and learned position embedding (first stage), pre-norm blocks with
// causal attention, final norm, untied LM head and loss (last stage). Knows nothing of pipelines,
// communication or programs.
//
//   PENSTOCK_ASSIGN_OR_RETURN(auto stage, GptStage::Create(config, range, seed, device));
//   stage->ZeroGradients();                                      // once an iteration
//   PENSTOCK_ASSIGN_OR_RETURN(StageForward forward, stage->Forward(shape, tokens, input, 0, loss_tokens));
//   ... send forward.output; it may then be reset ...
//   PENSTOCK_ASSIGN_OR_RETURN(at::Tensor input_gradient, stage->Backward(std::move(forward),
//   output_gradient));
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/model/parameters.h"
#include "worker/model/token_batch.h"
#include "worker/program/program.h"

namespace penstock::worker {

// What the backward pass of a micro-batch needs. Opaque.
struct StageGraph;

// What a stage keeps of a micro-batch between forward and backward.
struct StageForward {
  // Not the last stage: the activation to send, [rows, length, hidden] or [tokens, hidden]. Last stage: the
  // loss, a float64 scalar (sum over this micro-batch's loss positions / loss_tokens). Backward does not need
  // it.
  at::Tensor output;
  std::shared_ptr<StageGraph> graph;
};

struct NamedParameter {
  // Independent of the pipeline split, such as "layers.3.attention.qkv.weight" (worker/model/parameters.h).
  std::string name;
  // Of the model's type.
  at::Tensor value;
  // Same shape; float32 for bfloat16, otherwise of the model's type. The same tensor for the stage's whole
  // life.
  at::Tensor gradient;
};

class GptStage {
 public:
  // Initial values are a function of (seed, parameter name, shape) alone: the same model for every split.
  // Possible errors: INVALID_ARGUMENT (names the field of `config` or `range`), RESOURCE_EXHAUSTED (memory).
  static absl::StatusOr<std::unique_ptr<GptStage>> Create(const ModelConfig& config, const StageRange& range,
                                                          uint64_t seed, at::Device device);
  ~GptStage();
  GptStage(const GptStage&) = delete;
  GptStage& operator=(const GptStage&) = delete;

  // `input`: the activation received from the previous stage; undefined on the first stage. `tokens`: of the
  // same micro-batch; only the first and the last stage read them. `loss_tokens`: of the global batch (last
  // stage). The first `full_recompute_layers` layers keep only their input and run again in Backward, with
  // the same bits as a result. The last stage adds the gradient of head.weight already here
  // (worker/model/loss_head.h). Possible errors: INVALID_ARGUMENT (a length above max_sequence_length, a
  // missing or wrong input), RESOURCE_EXHAUSTED (memory), INTERNAL.
  absl::StatusOr<StageForward> Forward(const MicroBatch& shape, const TokenBatch& tokens,
                                       const at::Tensor& input, int64_t full_recompute_layers,
                                       double loss_tokens);

  // Adds to the gradients of the parameters and returns that of the input (undefined on the first stage).
  // `output_gradient`, of the shape of the output, is undefined on the last stage.
  // Possible errors: INVALID_ARGUMENT (a missing or wrong gradient), RESOURCE_EXHAUSTED (memory), INTERNAL.
  absl::StatusOr<at::Tensor> Backward(StageForward forward, const at::Tensor& output_gradient);

  void ZeroGradients();

  // In the order of StageParameterSpecs.
  const std::vector<NamedParameter>& parameters() const;

 private:
  struct Model;
  explicit GptStage(std::unique_ptr<Model> model);
  std::unique_ptr<Model> model_;
};

}  // namespace penstock::worker
