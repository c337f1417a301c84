// AdamW over the parameters of a rank (Loshchilov and Hutter, "Decoupled Weight Decay Regularization",
// algorithm 2).
//
//   AdamW optimizer(job.training, parameters);
//   PENSTOCK_ASSIGN_OR_RETURN(at::Tensor squares, optimizer.SumOfSquaredGradients());
//   ... sum over the ranks of the pipeline: the global norm; clip ...
//   PENSTOCK_RETURN_IF_ERROR(optimizer.Step(iteration, /*gradient_scale=*/clip / norm));
//
// Weight decay applies to matrices alone, as is usual: not to biases and norms. bfloat16 parameters have
// float32 masters, which are what is updated; the parameters are their rounding.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/checkpoint/tensor_file.h"
#include "worker/model/stage.h"
#include "worker/program/job.h"

namespace penstock::worker {

// Not thread-safe.
class AdamW {
 public:
  // The tensors of `parameters` are shared with their stage.
  // Possible errors: RESOURCE_EXHAUSTED (memory), INTERNAL.
  static absl::StatusOr<std::unique_ptr<AdamW>> Create(const TrainingConfig& config,
                                                       const std::vector<NamedParameter>& parameters);

  // Of the parameters that no other stage shares. [1], float64, on the device of the parameters. Possible
  // errors: INTERNAL.
  absl::StatusOr<at::Tensor> SumOfSquaredGradients() const;

  // Updates the parameters with their gradients times `gradient_scale`; leaves the gradients alone.
  // Iterations count from 0 and name the step: moments are corrected as those of step iteration + 1. Possible
  // errors: INTERNAL.
  absl::Status Step(uint64_t iteration, double gradient_scale);

  double learning_rate(uint64_t iteration) const;

  // What a checkpoint must hold beside the parameters; names begin with "optimizer.". Share their storage
  // with the optimizer, so that they can be read into. `with_copies`: also of parameters that are copies of
  // another stage's, whose state is the same.
  std::vector<NamedTensor> State(bool with_copies) const;

 private:
  // One parameter and its state, in the accumulation type.
  struct Slot {
    NamedParameter parameter;
    at::Tensor first_moment;
    at::Tensor second_moment;
    // Undefined where the parameter itself is of the accumulation type.
    at::Tensor master;
  };

  explicit AdamW(const TrainingConfig& config) : config_(config) {}

  void Update(Slot& slot, uint64_t iteration, double gradient_scale) const;

  const TrainingConfig config_;
  std::vector<Slot> slots_;
  at::Device device_ = at::kCPU;
};

}  // namespace penstock::worker
