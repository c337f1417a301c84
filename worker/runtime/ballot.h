// What the ranks of a job tell each other once in an iteration: a rank's votes travel with the squares of the
// gradients' norm, over its pipeline and then over the replicas (worker/runtime/gradient_norm.h). Then every
// rank knows what any rank has said, and all know the same.
//
//   PENSTOCK_ASSIGN_OR_RETURN(const at::Tensor ballot, MakeBallot(own, losses, device));
//   ... sum it over all ranks ...
//   const Votes said = VotesOf(ballot);   // once it is on the host
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/runtime/votes.h"

namespace penstock::worker {

// Elements of a ballot.
inline constexpr int64_t kVoteCount = 3;

// What a rank says, float64: `own`, and whether each of `losses` is finite, scalars of its micro-batches;
// none but on the last stage. Does not wait for a GPU. Possible errors: those of RunTorch.
absl::StatusOr<at::Tensor> MakeBallot(const Votes& own, const std::vector<at::Tensor>& losses,
                                      at::Device device);

// Whether the loss of any rank is not finite, of a sum: a scalar on its device. Throws what LibTorch throws.
at::Tensor LossNotFinite(const at::Tensor& sum);

// The votes of a sum, on the CPU: an element above 0 is a vote of any rank.
Votes VotesOf(const at::Tensor& sum);

}  // namespace penstock::worker
