// One pipeline stage: consecutive layers of a model, with what comes before the first and behind the last.
// Knows nothing of pipelines, communication or programs.
//
//   PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<Stage> stage, MakeTransformerStage(config, range, seed,
//   device)); stage->ZeroGradients();                                      // once an iteration
//   PENSTOCK_ASSIGN_OR_RETURN(StageForward forward, stage->Forward(shape, tokens, input, recompute,
//   loss_tokens, needed));
//   ... send forward.output; it may then be reset ...
//   PENSTOCK_ASSIGN_OR_RETURN(at::Tensor input_gradient, stage->Backward(std::move(forward),
//   output_gradient, beside, ready));
//
// or, with the weights' gradients later:
//
//   PENSTOCK_ASSIGN_OR_RETURN(SplitBackward split, stage->BackwardInput(std::move(forward),
//   output_gradient, beside));
//   ... send split.input_gradient ...
//   PENSTOCK_RETURN_IF_ERROR(stage->BackwardWeight(std::move(split.put_aside), ready));
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/model/expert_load.h"
#include "worker/model/flat_parameters.h"
#include "worker/model/linear.h"
#include "worker/model/token_batch.h"
#include "worker/program/program.h"

namespace penstock::worker {

// Called before a forward pass reads parameters that the stage alone holds, with the element of the flat
// buffers (flat_parameters.h) before which they lie: blocks until they are there, or has what is launched
// next wait. May be empty: they are.
using ParametersNeeded = std::function<void(int64_t end)>;

// What a stage keeps of a micro-batch between two of its passes. Each kind of stage has its own.
class StageState {
 public:
  virtual ~StageState() = default;
};

// What a stage keeps of a micro-batch between forward and backward.
struct StageForward {
  // Not the last stage: the activation to send, of the shape of the plan's transfer. Last stage: the loss, a
  // float64 scalar (sum over this micro-batch's loss positions / divisor). Of a stage group each context
  // rank's is that of its own tokens, and tensor rank 0 has it, so that all of them add up to the loss once;
  // the other tensor ranks have 0. Backward does not need it.
  at::Tensor output;
  std::shared_ptr<StageState> state;
  // Last stage: of each of the micro-batch's TokenBatch::loss_runs the sum of its weighted cross entropy,
  // [runs] float64; undefined where there are none, and on tensor ranks but the first.
  at::Tensor run_losses = {};
};

struct SplitBackward {
  // What the weights' gradients are made of. Its memory is free when the last copy is gone.
  using PutAside = std::shared_ptr<StageState>;

  // As Stage::Backward returns it.
  at::Tensor input_gradient;
  PutAside put_aside;
};

// Of the layers and tokens of a rank; those of all ranks add up to the batch's (router_losses.h).
struct RouterLosses {
  double balance = 0;
  double z = 0;
};

// Not thread-safe. Micro-batches may be between their passes in any number and order.
class Stage {
 public:
  virtual ~Stage() = default;

  // `input`: the activation received from the previous stage; undefined on the first stage. `tokens`: of the
  // same micro-batch, on the stage's device, with what the stage needs (TokenNeedsOf). `loss_tokens`: what
  // the loss of the global batch is divided by (last stage). `recompute` changes memory and time, never a bit
  // of a result. `needed` is asked for parameters while the pass runs, the lower layers' first. Possible
  // errors: INVALID_ARGUMENT (a length above max_sequence_length, a missing or wrong input),
  // RESOURCE_EXHAUSTED (memory), INTERNAL; those of its StageGroup, where ranks exchange.
  virtual absl::StatusOr<StageForward> Forward(const MicroBatch& shape, const TokenBatch& tokens,
                                               const at::Tensor& input, const LayerRecompute& recompute,
                                               double loss_tokens, const ParametersNeeded& needed) = 0;

  // The same for samples that are not learnt: bit for bit the same output and losses, but no gradient is
  // touched and nothing is kept for a pass back (`state` is null).
  virtual absl::StatusOr<StageForward> ForwardAlone(const MicroBatch& shape, const TokenBatch& tokens,
                                                    const at::Tensor& input, double loss_tokens,
                                                    const ParametersNeeded& needed) = 0;

  // Adds to the gradients of the parameters and returns that of the input (undefined on the first stage).
  // `output_gradient`, of the shape of the output, is undefined on the last stage. Once for a forward pass.
  // `beside`: which products for weights are made while rows of experts travel. `ready` hears of the
  // parameters' gradients while the pass makes them, upper ones first. Possible errors:
  // INVALID_ARGUMENT (a missing or wrong gradient), RESOURCE_EXHAUSTED (memory), INTERNAL; those of its
  // StageGroup.
  virtual absl::StatusOr<at::Tensor> Backward(StageForward forward, const at::Tensor& output_gradient,
                                              const ProductsBeside& beside, const GradientsReady& ready) = 0;

  // The same in two steps: all but the gradients of the linear layers inside Transformer layers that are
  // beside no exchange, and those. Together they add what Backward adds, bit for bit. Possible errors: those
  // of Backward.
  virtual absl::StatusOr<SplitBackward> BackwardInput(StageForward forward, const at::Tensor& output_gradient,
                                                      const ProductsBeside& beside) = 0;
  virtual absl::Status BackwardWeight(SplitBackward::PutAside put_aside, const GradientsReady& ready) = 0;

  virtual void ZeroGradients() = 0;

  // Of its layers with experts, since the last call.
  virtual ExpertLoads TakeExpertLoads() { return {}; }
  // Weighted losses of its routers, of this rank's tokens, since the last call; the host waits.
  virtual RouterLosses TakeRouterLosses() { return {}; }

  // The same buffers for the stage's whole life.
  virtual const FlatParameters& flat_parameters() const = 0;
  const std::vector<NamedParameter>& parameters() const { return flat_parameters().parameters; }
};

}  // namespace penstock::worker
