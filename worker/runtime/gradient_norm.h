// The norm of all gradients of a model, over the stages of its pipeline and, where replicas divide the
// optimizer's state, over the replicas.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/runtime/executor.h"

namespace penstock::worker {

struct NormGroups {
  // The ranks of this replica.
  std::vector<uint32_t> pipeline;
  // Ranks of every replica, in their order; empty where the optimizer's state is not divided.
  std::vector<uint32_t> replicas = {};
};

// Gradients are reduced over the replicas. Those that several stages share are summed over the pipeline on
// the way. The same bits on all ranks, whether the optimizer's state is divided or not: what is added up, and
// in which order, is the sums of squares by stage and shard; a reduction adds zeros to them at most. Possible
// errors: those of Communicator::AllReduceSum, RESOURCE_EXHAUSTED (memory), INTERNAL.
absl::StatusOr<double> ReduceGradientNorm(const ExecutorParts& parts, uint32_t stages,
                                          const NormGroups& groups);

}  // namespace penstock::worker
