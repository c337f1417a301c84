// Times of a stage's passes over micro-batches of several shapes, and of one tensor rank's part of them.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/profile/core_share.h"
#include "worker/profile/fit.h"
#include "worker/profile/measured_profile.h"
#include "worker/profile/shape_visits.h"
#include "worker/profile/stage_run.h"
#include "worker/program/program.h"

namespace penstock::worker {

struct MeasuredPasses {
  std::vector<CostPoint> forward;
  // Of a layer: what BACKWARD takes, divided as BACKWARD_INPUT and BACKWARD_WEIGHT are.
  std::vector<CostPoint> backward_input;
  std::vector<CostPoint> backward_weight;
  // Sums over all shapes.
  double forward_ns = 0;
  double backward_none_ns = 0;
  double backward_selective_ns = 0;
  double backward_full_ns = 0;
  double backward_input_ns = 0;
  double backward_weight_ns = 0;
  // Of each shape: that of its forward pass (PassTimes).
  std::vector<double> spreads;
  Interference interference;
};

// Of the shapes that VisitShapes has time for. `layer`: measure every kind of backward pass. Possible errors:
// those of VisitShapes.
absl::StatusOr<MeasuredPasses> MeasureShapes(StageRun& run, const std::vector<MicroBatch>& shapes,
                                             const FiguresOfStage& figures, bool layer, double budget_ns,
                                             const KeptPart& kept);

// What `rank`, one of `degree` that divide the stage of `whole`, computes, of as many of the shapes as there
// is time for, at least four. Both take turns on each shape, so that a busy machine slows both; the form is
// fitted to `form`, that of the whole stage, times what the rank takes of it. Both passes count: planners
// take the backward pass for the whole stage's / (degree * efficiency), or for the forward pass times the
// whole stage's ratio. Possible errors: those of the passes and of `kept`.
absl::StatusOr<TensorTime> MeasureTensorRank(StageRun& whole, StageRun& rank, int degree,
                                             const std::vector<MicroBatch>& shapes,
                                             const FiguresOfStage& figures, const MeasuredTime& form,
                                             double budget_ns, const KeptPart& kept);

// The first `count` of `shapes` in such an order that small and large ones are among the first few of them.
std::vector<MicroBatch> Spread(const std::vector<MicroBatch>& shapes, size_t count);

}  // namespace penstock::worker
