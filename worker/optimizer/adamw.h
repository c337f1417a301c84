// AdamW over the parameters of a rank (Loshchilov and Hutter, "Decoupled Weight Decay Regularization",
// algorithm 2), in one pass over memory.
//
//   PENSTOCK_ASSIGN_OR_RETURN(auto optimizer, AdamW::Create(job.training, {&stage->flat_parameters()}));
//   PENSTOCK_ASSIGN_OR_RETURN(at::Tensor squares, optimizer->SumsOfSquares());
//   ... sum over the ranks of the pipeline: the global norm; clip ...
//   PENSTOCK_RETURN_IF_ERROR(optimizer->Step(iteration, {.gradients = clip / norm, .skip = norm.isnan()}));
//
// Weight decay applies to matrices alone, as is usual: not to biases and norms. bfloat16 parameters have
// float32 masters, which are what is updated; the parameters are their rounding.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/checkpoint/tensor_piece.h"
#include "worker/model/flat_parameters.h"
#include "worker/optimizer/adamw_kernel.h"
#include "worker/optimizer/part_squares.h"
#include "worker/optimizer/sharding.h"
#include "worker/program/job.h"

namespace penstock::worker {

// How a step is taken. Scalars on the device of the parameters: on a GPU nobody waits for them.
struct StepScale {
  // Gradients are multiplied by it; float64.
  at::Tensor gradients;
  // Whether nothing is changed; bool.
  at::Tensor skip;
};

// Not thread-safe.
class AdamW {
 public:
  // `stages` are those of the rank; they must outlive the optimizer. Its state is that of what it updates.
  // Possible errors: RESOURCE_EXHAUSTED (memory), INTERNAL.
  static absl::StatusOr<std::unique_ptr<AdamW>> Create(const TrainingConfig& config,
                                                       const std::vector<const FlatParameters*>& stages,
                                                       const Shardings& shardings = {});

  const Shardings& shardings() const { return shardings_; }
  // Of all but experts that ranks divide.
  const Sharding& sharding() const { return shardings_.of_tensor_rank; }

  // Of the gradients with these holders that no other stage shares: [stages, shards], float64, on the device
  // of the parameters; 0 for shards that are updated elsewhere. What other tensor ranks have too is counted
  // on the first of them. The same bits whoever computes a shard, with any number of threads. Possible
  // errors: INTERNAL.
  absl::StatusOr<at::Tensor> SumsOfSquares(Holders holders = Holders::kOfTensorRank) const;

  // Of the gradients as Step would have them. Shared ones are the sum over the stages by then.
  const PartSquares& part_squares() const { return *part_squares_; }

  // Updates the parameters with their scaled gradients, which are worth nothing after it. Iterations count
  // from 0 and name the step: moments are corrected as those of step iteration + 1. Possible errors:
  // INTERNAL.
  absl::Status Step(uint64_t iteration, const StepScale& scale);
  // The same with a scale that the host knows.
  absl::Status Step(uint64_t iteration, double gradient_scale);

  double learning_rate(uint64_t iteration) const;

  // What a checkpoint must hold beside the parameters; names begin with "optimizer.". Share their storage
  // with the optimizer, so that they can be read into. `with_copies`: also of parameters that are copies of
  // another stage's, whose state is the same.
  std::vector<TensorPiece> State(bool with_copies) const;
  // Of that, what these holders have; no copies.
  std::vector<TensorPiece> StateOf(Holders holders) const;
  // Of that, the masters alone; of copies too. None where the parameters are updated themselves.
  std::vector<TensorPiece> Masters() const;

 private:
  // What is updated here of a parameter.
  struct Piece {
    const NamedParameter* parameter = nullptr;
    // In the flat buffers of the stage.
    FlatSpan place = {};
    // Of its first element in the state.
    int64_t state = 0;

    // Whether it is of a matrix: a share has what it has of one in one dimension.
    bool decays() const { return parameter->part.whole_shape.size() > 1; }
  };

  // A stage and its state, flat and in the accumulation type: only of what is updated here, end to end.
  struct StageState {
    const FlatParameters* parameters = nullptr;
    // Ascending in `place` and in `state`.
    std::vector<Piece> pieces = {};
    int64_t size = 0;
    at::Tensor first_moment = {};
    at::Tensor second_moment = {};
    // Undefined where the parameters themselves are of the accumulation type.
    at::Tensor master = {};
  };

  AdamW(const TrainingConfig& config, const Shardings& shardings) : config_(config), shardings_(shardings) {}

  // Of the parameters.
  at::Device device() const;

  // Of the pieces that `wanted` names.
  template <typename Wanted>
  std::vector<TensorPiece> StateWhere(Wanted wanted) const;
  // `state` is that of the piece's stage.
  TensorPiece StatePiece(const Piece& piece, const char* kind, const at::Tensor& state) const;
  StageState MakeState(const FlatParameters& parameters) const;
  AdamWFactors FactorsOf(uint64_t iteration, double gradient_scale) const;
  // On the CPU.
  void UpdateOnHost(const AdamWFactors& factors);
  template <typename Float>
  static void UpdateInOnePass(const StageState& stage, const AdamWFactors& factors);
  // On other devices: with LibTorch's fused kernel, which reads the scale there.
  void UpdateByLibTorch(const StageState& stage, const StepScale& scale, uint64_t iteration) const;

  const TrainingConfig config_;
  const Shardings shardings_;
  std::vector<StageState> stages_;
  std::optional<PartSquares> part_squares_;
};

}  // namespace penstock::worker
