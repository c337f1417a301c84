// A time that no plan for a batch can beat with the stages, schedule, recompute and memory of the job: how
// far a plan is from the best of these is known without knowing the best.
//
// The largest of
//   - for every rank: its share of the work of all samples, with an overhead for each of the micro-batches
//   that
//     memory asks for at least or the recompute that saves them, behind the shortest fill and before the
//     shortest drain;
//   - for every rank: its work, where micro-batches reach it one after another through the stages before it;
//   - for every rank: the same work against the memory that micro-batches hold while they are in the
//   pipeline;
//   - the way of the longest sample through all stages and back.
// Each holds for any partition, layout, order, schedule and recompute that the job allows, because time and
// memory grow with tokens. docs/planning.md, "Lower bound", has the proofs.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "planner/core/bound/pipeline_bound.h"
#include "planner/core/bound/ramp_bound.h"
#include "planner/core/cost/cost_model.h"
#include "planner/core/model/types.h"
#include "planner/core/parallel/stop.h"

namespace penstock::core {

class LowerBound {
 public:
  LowerBound(const CostModel& costs, const Job& job);

  // Nanoseconds, to the end of the optimizer step. Linear in samples and stages: about 0.1 us for each of
  // both. Not a bound where `stop` has stopped it.
  int64_t operator()(absl::Span<const SampleTokens> samples, StopToken stop = {}) const;

  // What the passes of a sample take at least of a rank of a pipeline, in the mean over its positions:
  // samples add up, whatever micro-batches they are in.
  double WorkNs(const SampleTokens& sample) const;

 private:
  // What is known of a batch.
  struct BatchSums {
    double samples = 0;
    // Replicas that have work.
    double replicas = 0;
    // By position: what they do together in the time in which one rank that is not slow does 1.
    std::vector<double> capacity;
    TokenSums all;
    LayerVector linear = {};
    // What every micro-batch pays once.
    LayerVector overhead = {};
    // No micro-batch is faster, or has fewer tokens.
    LayerVector least = {};
    TokenSums least_tokens;
  };

  // How long a micro-batch is held on a stage at least: while it goes through it and the stages after it, and
  // back.
  struct HeldTime {
    LayerVector passes = {};
    TransferBound transfers;
  };

  // The samples of a batch on a stage, [option * samples + sample]: the bytes that each keeps, the root of
  // their product with the time that it keeps them, and the recompute that the option costs.
  struct HeldStage {
    double once_ns = 0;
    size_t options = 0;
    std::vector<double> kept;
    std::vector<double> root;
    std::vector<double> extra;
    // Of the first option.
    double total_root = 0;
  };

  HeldTime HeldTimeOf(int stage) const;
  BatchSums Sum(absl::Span<const SampleTokens> samples) const;
  double FillTransfersNs(int stages, const BatchSums& batch) const;
  // Time of stages [first, last) for one micro-batch, with transfers between them and to `last`.
  double ChainNs(int first, int last, BoundPass pass, const BatchSums& batch) const;
  double PathNs(const SampleTokens& sample) const;
  double RankNs(size_t rank, const BatchSums& batch, absl::Span<const SampleTokens> samples,
                const RampBound& ramp) const;
  // From the end of the rank's last pass of any kind, or (`inputs`) of its last input gradient, to the end of
  // the last reduction of gradients.
  double TailNs(const RankBound& rank, bool inputs, const BatchSums& batch) const;
  // Of all micro-batches of all replicas on a rank: overheads of the passes `work` and recompute, where each
  // micro-batch must fit in memory.
  double MicroBatchesNs(const RankBound& rank, const LayerVector& work, const BatchSums& batch) const;
  // Of one replica on average: work and recompute, where all that is in the pipeline must fit in memory.
  double SteadyStateNs(const RankBound& rank, const LayerVector& work, const BatchSums& batch,
                       absl::Span<const SampleTokens> samples) const;
  HeldStage HeldOn(int stage, const BatchSums& batch, absl::Span<const SampleTokens> samples) const;
  double RecomputeNs(const TokenSums& sums) const;

  // What the `replicas` fastest ranks of each position do.
  std::vector<double> CapacityOf(int replicas) const;

  // Micro-batches of all replicas together at least.
  double FewestMicroBatches(const BatchSums& batch) const;

  int replicas_;
  // Whether a replica may be left without a sample that would be enough for it.
  bool may_be_empty_;
  SlowGroups slow_groups_;
  PipelineBound pipeline_;
};

}  // namespace penstock::core
