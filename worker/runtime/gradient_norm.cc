#include "worker/runtime/gradient_norm.h"

#include <ATen/ATen.h>

#include <optional>
#include <utility>

#include "common/status/status_macros.h"
#include "worker/comm/groups.h"
#include "worker/runtime/ballot.h"
#include "worker/runtime/shared_gradients.h"
#include "worker/torch/boundary.h"

namespace penstock::worker {
namespace {

// Sums of squares by stage of this rank, [stages of the pipeline, tensor ranks, shards]: 0 in the rows of
// other ranks.
absl::StatusOr<at::Tensor> OwnSquares(const ExecutorParts& parts, uint32_t stages) {
  PENSTOCK_ASSIGN_OR_RETURN(const at::Tensor own, parts.optimizer->SumsOfSquares());
  return CallTorch("the gradient norm", [&] {
    const GroupPlace place = parts.group->place();
    at::Tensor squares = at::zeros({stages, place.tensors, own.size(1)}, own.options());
    int64_t row = 0;
    for (const auto& [number, _] : parts.stages) squares[number][place.tensor].copy_(own[row++]);
    return squares;
  });
}

// [shards]: the rows of `squares`, [..., shards], in their order.
at::Tensor SumRows(const at::Tensor& squares) {
  const at::Tensor rows = squares.reshape({-1, squares.size(-1)});
  at::Tensor sums = at::zeros({rows.size(1)}, rows.options());
  for (int64_t row = 0; row < rows.size(0); ++row) sums.add_(rows[row]);
  return sums;
}

at::Tensor NormOf(const at::Tensor& sums) {
  at::Tensor sum = at::zeros({}, sums.options());
  for (int64_t shard = 0; shard < sums.numel(); ++shard) sum.add_(sums[shard]);
  return sum.sqrt_();
}

// Sums of squares over this replica, by shard. `sums`: of the gradients that stages share, of this rank; they
// travel with the others.
absl::StatusOr<at::Tensor> ReduceOverPipeline(const ExecutorParts& parts, uint32_t stages,
                                              const NormGroups& groups, std::vector<at::Tensor> sums,
                                              const at::Tensor& ballot) {
  PENSTOCK_ASSIGN_OR_RETURN(const at::Tensor squares, OwnSquares(parts, stages));
  const size_t shared_count = sums.size();
  sums.insert(sums.end(), {squares, ballot});
  PENSTOCK_RETURN_IF_ERROR(parts.communicator->AllReduceSum(sums, groups.pipeline));
  sums.resize(shared_count);
  PENSTOCK_ASSIGN_OR_RETURN(
      const at::Tensor shared,
      ScatterSharedGradients(parts.job->model, parts.stages, parts.optimizer->sharding(), sums,
                             parts.device->place(), parts.group->place()));
  return CallTorch("the gradient norm", [&] { return SumRows(squares).add_(shared); });
}

// The same of stage groups. Every rank of the pipeline would say what context ranks have alike, and what
// stages share: of these the first says it. `sums` are those of this rank's place, so that they travel apart.
absl::StatusOr<at::Tensor> ReduceOverStageGroups(const ExecutorParts& parts, uint32_t stages,
                                                 const NormGroups& groups, std::vector<at::Tensor> sums,
                                                 const at::Tensor& ballot) {
  const GroupPlace place = parts.group->place();
  const Sharding& sharding = parts.optimizer->sharding();
  if (!sums.empty()) PENSTOCK_RETURN_IF_ERROR(parts.communicator->AllReduceSum(sums, groups.line));
  PENSTOCK_ASSIGN_OR_RETURN(const at::Tensor shared,
                            ScatterSharedGradients(parts.job->model, parts.stages, sharding, sums,
                                                   parts.device->place(), parts.group->place()));
  PENSTOCK_ASSIGN_OR_RETURN(const at::Tensor own, OwnSquares(parts, stages));
  std::vector<at::Tensor> said;
  PENSTOCK_RETURN_IF_ERROR(RunTorch("the gradient norm", [&] {
    at::Tensor squares = at::cat({own, at::zeros_like(own.narrow(0, 0, 1))});
    if (parts.stages.contains(0)) squares[stages][place.tensor].copy_(shared);
    if (!sharding.divided && place.context > 0) squares.zero_();
    said = {squares, ballot};
  }));
  PENSTOCK_RETURN_IF_ERROR(parts.communicator->AllReduceSum(said, groups.pipeline));
  return CallTorch("the gradient norm", [&] { return SumRows(said.front()); });
}

// Of a divided state: what this rank knows of its own shard, which it says to those that have the others.
absl::StatusOr<at::Tensor> OwnShard(const at::Tensor& by_shard, const Sharding& sharding) {
  return CallTorch("the gradient norm", [&] {
    at::Tensor own = at::zeros_like(by_shard);
    own.narrow(0, sharding.own, 1).copy_(by_shard.narrow(0, sharding.own, 1));
    return own;
  });
}

// Of the experts that ranks divide, over the job. Of each there is one rank that says it: of a divided state
// who has the shard, else the first of the holders.
absl::StatusOr<at::Tensor> ReduceOfExperts(const ExecutorParts& parts, uint32_t stages,
                                           const NormGroups& groups) {
  const GroupPlace place = parts.group->place();
  const Sharding& sharding = parts.optimizer->shardings().of_experts;
  PENSTOCK_ASSIGN_OR_RETURN(const at::Tensor own, parts.optimizer->SumsOfSquares(Holders::kOfExperts));
  std::vector<at::Tensor> said;
  PENSTOCK_RETURN_IF_ERROR(RunTorch("the gradient norm", [&] {
    at::Tensor squares = at::zeros({stages, place.experts, own.size(1)}, own.options());
    int64_t row = 0;
    for (const auto& [number, _] : parts.stages) squares[number][place.expert()].copy_(own[row++]);
    if (!sharding.divided && sharding.own > 0) squares.zero_();
    said = {squares};
  }));
  PENSTOCK_RETURN_IF_ERROR(parts.communicator->AllReduceSum(said, groups.world));
  return CallTorch("the gradient norm", [&] { return SumRows(said.front()); });
}

}  // namespace

absl::StatusOr<NormAndVotes> ReduceNormAndVotes(const ExecutorParts& parts, uint32_t stages,
                                                const NormGroups& groups, const at::Tensor& ballot) {
  const Sharding& sharding = parts.optimizer->sharding();
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<at::Tensor> sums,
                            GatherSharedGradients(parts.job->model, parts.stages, sharding,
                                                  parts.device->place(), parts.group->place()));
  const auto reduce = parts.group->place().ranks() > 1 ? ReduceOverStageGroups : ReduceOverPipeline;
  PENSTOCK_ASSIGN_OR_RETURN(at::Tensor by_shard, reduce(parts, stages, groups, std::move(sums), ballot));
  if (!groups.replicas.empty()) {
    std::vector<at::Tensor> of_replicas = {ballot};
    if (sharding.divided) {
      PENSTOCK_ASSIGN_OR_RETURN(by_shard, OwnShard(by_shard, sharding));
      of_replicas.push_back(by_shard);
    }
    PENSTOCK_RETURN_IF_ERROR(parts.communicator->AllReduceSum(of_replicas, groups.replicas));
  }
  if (!groups.world.empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(const at::Tensor of_experts, ReduceOfExperts(parts, stages, groups));
    PENSTOCK_ASSIGN_OR_RETURN(by_shard, CallTorch("the gradient norm", [&] {
                                return at::cat({by_shard, of_experts});
                              }));
  }
  return CallTorch("the gradient norm",
                   [&] { return NormAndVotes{.norm = NormOf(by_shard), .ballot = ballot}; });
}

absl::StatusOr<NormAndVotes> ReduceNormOfShares(const ExecutorParts& parts, uint32_t rank,
                                                const std::vector<uint32_t>& world,
                                                const at::Tensor& ballot) {
  const std::optional<int> position = PositionIn(world, rank);
  if (!position.has_value()) return absl::InternalError("a group without this rank");
  PENSTOCK_ASSIGN_OR_RETURN(const at::Tensor own, parts.optimizer->SumsOfSquares());
  std::vector<at::Tensor> said;
  PENSTOCK_RETURN_IF_ERROR(RunTorch("the gradient norm", [&] {
    at::Tensor squares = at::zeros({static_cast<int64_t>(world.size())}, own.options());
    squares[*position].copy_(own.sum());
    said = {squares, ballot};
  }));
  PENSTOCK_RETURN_IF_ERROR(parts.communicator->AllReduceSum(said, world));
  return CallTorch("the gradient norm",
                   [&] { return NormAndVotes{.norm = NormOf(said.front()), .ballot = ballot}; });
}

absl::StatusOr<StepScale> ScaleOfStep(const NormAndVotes& all, double clip_norm, bool learnt) {
  return CallTorch("clipping", [&] {
    StepScale scale;
    scale.gradients = at::ones_like(all.norm);
    if (clip_norm > 0)
      scale.gradients = at::where(all.norm > clip_norm, clip_norm / all.norm, scale.gradients);
    scale.skip = LossNotFinite(all.ballot).logical_or_(at::isfinite(all.norm).logical_not_());
    if (!learnt) scale.skip.fill_(true);
    return scale;
  });
}

}  // namespace penstock::worker
