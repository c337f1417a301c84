#include "worker/runtime/gradient_norm.h"

#include <ATen/ATen.h>

#include "common/status/status_macros.h"
#include "worker/runtime/ballot.h"
#include "worker/runtime/shared_gradients.h"
#include "worker/torch/boundary.h"

namespace penstock::worker {
namespace {

// Sums of squares of this rank's gradients, [stages of the pipeline, shards]: 0 in the rows of other ranks'
// stages.
absl::StatusOr<at::Tensor> OwnSquares(const ExecutorParts& parts, uint32_t stages) {
  PENSTOCK_ASSIGN_OR_RETURN(const at::Tensor own, parts.optimizer->SumsOfSquares());
  return CallTorch("the gradient norm", [&] {
    at::Tensor squares = at::zeros({stages, own.size(1)}, own.options());
    int64_t row = 0;
    for (const auto& [number, _] : parts.stages) squares[number].copy_(own[row++]);
    return squares;
  });
}

// By shard: over the stages, in their order, then what they share.
absl::StatusOr<at::Tensor> SumStages(const at::Tensor& squares, const at::Tensor& shared) {
  return CallTorch("the gradient norm", [&] {
    at::Tensor sums = at::zeros({squares.size(1)}, squares.options());
    for (int64_t stage = 0; stage < squares.size(0); ++stage) sums.add_(squares[stage]);
    return sums.add_(shared);
  });
}

at::Tensor NormOf(const at::Tensor& sums) {
  at::Tensor sum = at::zeros({}, sums.options());
  for (int64_t shard = 0; shard < sums.numel(); ++shard) sum.add_(sums[shard]);
  return sum.sqrt_();
}

}  // namespace

absl::StatusOr<NormAndVotes> ReduceNormAndVotes(const ExecutorParts& parts, uint32_t stages,
                                                const NormGroups& groups, const at::Tensor& ballot) {
  const ModelConfig& model = parts.job->model;
  const Sharding& sharding = parts.optimizer->sharding();
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<at::Tensor> sums,
                            GatherSharedGradients(model, parts.stages, sharding, parts.device->place()));
  PENSTOCK_ASSIGN_OR_RETURN(const at::Tensor squares, OwnSquares(parts, stages));
  const size_t shared_count = sums.size();
  sums.insert(sums.end(), {squares, ballot});
  PENSTOCK_RETURN_IF_ERROR(parts.communicator->AllReduceSum(sums, groups.pipeline));
  sums.resize(shared_count);
  PENSTOCK_ASSIGN_OR_RETURN(const at::Tensor shared, ScatterSharedGradients(model, parts.stages, sharding,
                                                                            sums, parts.device->place()));
  PENSTOCK_ASSIGN_OR_RETURN(const at::Tensor by_shard, SumStages(squares, shared));
  if (!groups.replicas.empty()) {
    std::vector<at::Tensor> of_replicas = {ballot};
    if (sharding.divided) of_replicas.push_back(by_shard);
    PENSTOCK_RETURN_IF_ERROR(parts.communicator->AllReduceSum(of_replicas, groups.replicas));
  }
  return CallTorch("the gradient norm",
                   [&] { return NormAndVotes{.norm = NormOf(by_shard), .ballot = ballot}; });
}

absl::StatusOr<StepScale> ScaleOfStep(const NormAndVotes& all, double clip_norm) {
  return CallTorch("clipping", [&] {
    StepScale scale;
    scale.gradients = at::ones_like(all.norm);
    if (clip_norm > 0)
      scale.gradients = at::where(all.norm > clip_norm, clip_norm / all.norm, scale.gradients);
    scale.skip = LossNotFinite(all.ballot).logical_or_(at::isfinite(all.norm).logical_not_());
    return scale;
  });
}

}  // namespace penstock::worker
