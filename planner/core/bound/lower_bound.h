// A time that no plan for a batch can beat: how far a plan is from the best is known without knowing the
// best.
//
// For every stage: its share of the work of all samples (without the overheads that larger micro-batches
// amortise), behind the shortest possible fill and before the shortest possible drain; and the way of the
// longest sample through all stages and back. Each holds for any partition, layout and order, because time
// grows with tokens: a micro-batch takes at least the sum of what its samples take without overheads, plus
// one overhead.
//
// For schedules with an unsplit backward pass. Recompute counts as none, or as what the job forces.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "planner/core/cost/cost_model.h"
#include "planner/core/model/types.h"

namespace penstock::core {

class LowerBound {
 public:
  LowerBound(const CostModel& costs, const Job& job);

  // Nanoseconds, to the end of the optimizer step.
  int64_t operator()(absl::Span<const SampleTokens> samples) const;

 private:
  // A layer from below: scale * form(...), without the parts of the form that only raise it.
  struct LayerBound {
    LayerTime form;
    bool loss_tokens_only = false;
    double forward_scale = 0;
    double backward_scale = 0;
  };
  enum class Pass : uint8_t { kForward, kBackward };

  static LayerBound BoundLayer(const CostModel& costs, LayerKind kind, RecomputeMode mode);
  // Time of all layers of the stages [first, last) from below, for micro-batches with these sums; `each` has
  // what every single one of them at least computes, and overheads are counted once.
  double StagesNs(int first, int last, Pass pass, const TokenSums& sums, const TokenSums& each) const;
  double TransfersNs(int stages, const TokenSums& sums) const;

  const CostModel& costs_;
  int replicas_;
  LayerBound layers_[kLayerKinds];
};

}  // namespace penstock::core
