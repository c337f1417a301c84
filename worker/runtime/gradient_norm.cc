#include "worker/runtime/gradient_norm.h"

#include <ATen/ATen.h>

#include <cmath>

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
absl::StatusOr<at::Tensor> SumStages(const at::Tensor& squares, const std::vector<double>& shared) {
  return CallTorch("the gradient norm", [&] {
    const at::Tensor host = squares.to(at::kCPU);
    at::Tensor sums = at::zeros({host.size(1)}, at::kDouble);
    for (int64_t stage = 0; stage < host.size(0); ++stage) sums.add_(host[stage]);
    for (size_t i = 0; i < shared.size(); ++i) sums[static_cast<int64_t>(i)].add_(shared[i]);
    return sums.to(squares.device());
  });
}

double NormOf(const at::Tensor& sums) {
  const at::Tensor host = sums.to(at::kCPU);
  double sum = 0;
  for (int64_t shard = 0; shard < host.numel(); ++shard) sum += host[shard].item<double>();
  return std::sqrt(sum);
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
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<double> shared,
                            ScatterSharedGradients(model, parts.stages, sharding, sums));
  PENSTOCK_ASSIGN_OR_RETURN(const at::Tensor by_shard, SumStages(squares, shared));
  if (!groups.replicas.empty()) {
    std::vector<at::Tensor> of_replicas = {ballot};
    if (sharding.divided) of_replicas.push_back(by_shard);
    PENSTOCK_RETURN_IF_ERROR(parts.communicator->AllReduceSum(of_replicas, groups.replicas));
  }
  return CallTorch("the gradient norm",
                   [&] { return NormAndVotes{.norm = NormOf(by_shard), .votes = ReadVotes(ballot)}; });
}

}  // namespace penstock::worker
