// Times of a layer's passes over what one of several context ranks has of a micro-batch.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/profile/fit.h"
#include "worker/profile/measured_passes.h"
#include "worker/profile/part_figures.h"
#include "worker/profile/shape_visits.h"
#include "worker/profile/stage_run.h"
#include "worker/program/program.h"

namespace penstock::worker {

// What the forms of a layer's passes are fitted to.
struct LayerPoints {
  std::vector<CostPoint> forward;
  std::vector<CostPoint> backward_input;
  std::vector<CostPoint> backward_weight;

  void Add(const LayerPoints& more);
};

std::vector<CostPoint> Joined(std::vector<CostPoint> points, const std::vector<CostPoint>& more);

struct ShareMeasurement {
  // Of whole shapes, and of what the rank has of divided ones.
  FiguresOfStage figures;
  FiguresOfStage share_figures;
  double budget_ns = 0;
  KeptPart kept;
};

// What `rank`, one of several context ranks, takes for its share of each of the shapes divided over them
// (DividedShape), of as many as there is time and memory for, at least four where so many are long enough. It
// takes turns with `whole`, the layer of `passes`, over the whole shape, which has as many tokens and
// squares: a busy machine slows both, and what counts is how much longer the share takes. What the rank would
// receive is there at once (lone_rank.h); exchanges are measured apart. Possible errors: those of the passes
// and of `kept`.
absl::StatusOr<LayerPoints> MeasureShares(StageRun& whole, StageRun& rank,
                                          absl::Span<const MicroBatch> shapes, const MeasuredPasses& passes,
                                          const ShareMeasurement& measurement);

}  // namespace penstock::worker
