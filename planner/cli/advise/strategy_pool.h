// A small pool of strategies for lengths such as these: of all meshes, and of meshes side by side that a
// dynamic programme proposes (side_by_side.h), those on which iterations are fastest.
//
// Our own planner plans batches on them, but for those that cannot be the fastest by a bound, and hardly by a
// glance: first comes the strategy that is the fastest for all batches together, then, one by one, that which
// shortens them most.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/parallel/task_pool.h"
#include "penstock/v1/job.pb.h"
#include "penstock/v1/plan.pb.h"
#include "planner/cli/advise/candidates.h"
#include "planner/cli/advise/mesh_samples.h"

namespace penstock::cli {

struct PooledStrategy {
  v1::Strategy strategy;
  // Numbers of the batches that are fastest on it, and their mean time on it and on the first strategy.
  std::vector<int> batches;
  double mean_ns = 0;
  double alone_ns = 0;
  // Of these batches together, what each of its meshes has.
  std::vector<MeshSamples> samples;
};

struct StrategyPool {
  // The one that is best alone comes first. At least one.
  std::vector<PooledStrategy> strategies;
  // That it was proposed for.
  int batches = 0;
  // Mean time of a batch on the first alone, and on whichever is fastest.
  double alone_ns = 0;
  double pool_ns = 0;
};

std::vector<v1::Strategy> StrategiesOf(const StrategyPool& pool);

struct PoolLimits {
  int strategies = 4;
  // One more must shorten the mean iteration by so much.
  double least_gain = 0.001;
};

// Every mesh of `ranks` ranks alone, the simplest first, with dynamic micro-batches. Possible errors: those
// of MakeCandidates.
absl::StatusOr<std::vector<v1::Strategy>> SingleMeshes(const v1::JobSpec& base, uint32_t ranks,
                                                       uint32_t global_batch, const Given& given = {});

// The same, and what ProposeSideBySide has for the batches. Possible errors: those of MakeCandidates, where
// there is nothing side by side either; those of ProposeSideBySide.
absl::StatusOr<std::vector<v1::Strategy>> StrategiesToTry(const v1::JobSpec& base, uint32_t ranks,
                                                          absl::Span<const v1::Batch> batches,
                                                          const Given& given, TaskPool* threads);

struct StrategyAlone {
  v1::Strategy strategy;
  // Of a batch.
  double mean_ns = 0;
};

// The one on which all batches together are the fastest, planned as `base` is but with effort fast. Possible
// errors: those of ProposePool.
absl::StatusOr<StrategyAlone> FastestAlone(const v1::JobSpec& base, absl::Span<const v1::Strategy> strategies,
                                           absl::Span<const v1::Batch> batches, TaskPool* threads);

// `base` has model, profile and planning; its mesh does not matter. Plans with effort fast and stages of
// equal layers. Possible errors: RESOURCE_EXHAUSTED (no strategy can hold all of the batches: says why not),
// INVALID_ARGUMENT (a batch is malformed).
absl::StatusOr<StrategyPool> ProposePool(const v1::JobSpec& base, absl::Span<const v1::Strategy> strategies,
                                         absl::Span<const v1::Batch> batches, const PoolLimits& limits,
                                         TaskPool* threads);

}  // namespace penstock::cli
