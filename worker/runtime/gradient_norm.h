// The norm of all gradients of a model, over the stages of its pipeline and the tensor ranks of each, and,
// where replicas and context ranks divide the optimizer's state, over these; and what all ranks say
// (worker/runtime/ballot.h), which travels with it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/optimizer/adamw.h"
#include "worker/runtime/executor.h"

namespace penstock::worker {

struct NormGroups {
  // The ranks of this replica.
  std::vector<uint32_t> pipeline;
  // Those that this rank's gradients are summed over, in the order of their shards; empty: itself alone.
  std::vector<uint32_t> replicas = {};
  // Where stage groups have several ranks: those of the replica at this rank's place (Topology::LineGroup),
  // who have the same part of what stages share.
  std::vector<uint32_t> line = {};
  // Where ranks divide the experts: all ranks of the job.
  std::vector<uint32_t> world = {};
};

// On the device: nobody has waited for them yet.
struct NormAndVotes {
  // Scalar, float64.
  at::Tensor norm;
  // Those of all ranks (VotesOf).
  at::Tensor ballot;
};

// Gradients are reduced over the replicas. Those that several stages share are summed over the pipeline on
// the way. The same bits on all ranks, whether the optimizer's state is divided or not: what is added up, and
// in which order, is the sums of squares by stage, tensor rank and shard; a reduction adds zeros to them at
// most. What several tensor ranks have is counted on one of them. `ballot`: what this rank says. It does not
// go with the gradients, which would then be cut elsewhere in their message than those of a divided state,
// and differ in the last bit. Possible errors: those of Communicator::AllReduceSum, RESOURCE_EXHAUSTED
// (memory), INTERNAL.
absl::StatusOr<NormAndVotes> ReduceNormAndVotes(const ExecutorParts& parts, uint32_t stages,
                                                const NormGroups& groups, const at::Tensor& ballot);

// The same where each rank of `world` has a share of all gradients (worker/shares), and the optimizer updates
// this rank's: what is added up, in the order of the ranks, are the sums of squares of the shares, which no
// mesh changes. Possible errors: as above.
absl::StatusOr<NormAndVotes> ReduceNormOfShares(const ExecutorParts& parts, uint32_t rank,
                                                const std::vector<uint32_t>& world, const at::Tensor& ballot);

// Gradients are scaled so that their norm is `clip_norm` at most (0: not at all); there is no step where the
// loss of any rank or the norm is not finite, or nothing was `learnt`: weights would decay and moments fade
// for nothing. Possible errors: INTERNAL.
absl::StatusOr<StepScale> ScaleOfStep(const NormAndVotes& all, double clip_norm, bool learnt);

}  // namespace penstock::worker
