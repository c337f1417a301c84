// A small pool of strategies for lengths such as these: of all meshes, those on which iterations are fastest.
//
// Hydraulis (Li et al. 2024, section 5) proposes strategies by a dynamic programme over ranges of lengths and
// ranks. Here our own planner plans batches on the meshes, but for those whose bound says that they cannot be
// the fastest for a batch: first comes the mesh that is the fastest for all batches together, then, one by
// one, that which shortens them most.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/parallel/task_pool.h"
#include "penstock/v1/job.pb.h"
#include "penstock/v1/plan.pb.h"
#include "planner/cli/advise/candidates.h"

namespace penstock::cli {

struct PooledStrategy {
  v1::Strategy strategy;
  // Numbers of the batches that are fastest on it, and their mean time on it and on the first strategy.
  std::vector<int> batches;
  double mean_ns = 0;
  double alone_ns = 0;
};

struct StrategyPool {
  // The one that is best alone comes first. At least one.
  std::vector<PooledStrategy> strategies;
  // Mean time of a batch on the first alone, and on whichever is fastest.
  double alone_ns = 0;
  double pool_ns = 0;
};

std::vector<v1::Strategy> StrategiesOf(const StrategyPool& pool);

struct PoolLimits {
  int strategies = 4;
  // One more must shorten the mean iteration by so much.
  double least_gain = 0.005;
};

// Every mesh of `ranks` ranks, the simplest first, with dynamic micro-batches. Possible errors: those of
// MakeCandidates.
absl::StatusOr<std::vector<v1::Mesh>> MeshesOf(const v1::JobSpec& base, uint32_t ranks, uint32_t global_batch,
                                               const Given& given = {});

// `base` has model, profile and planning; its mesh does not matter. Plans with effort fast and stages of
// equal layers. Possible errors: RESOURCE_EXHAUSTED (no mesh can hold all of the batches: says why not),
// INVALID_ARGUMENT (a batch is malformed).
absl::StatusOr<StrategyPool> ProposePool(const v1::JobSpec& base, const std::vector<v1::Mesh>& meshes,
                                         absl::Span<const v1::Batch> batches, const PoolLimits& limits,
                                         TaskPool* threads);

}  // namespace penstock::cli
