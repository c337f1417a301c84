// Times of passes over micro-batches of several shapes, each of which is visited several times.
//
//   PENSTOCK_ASSIGN_OR_RETURN(const std::vector<ShapeTimes> times,
//                             VisitShapes(run, shapes, kinds, figures, budget_ns, {&kept, "layer"}));
//
// A host that others use is slower in one second than in another, and not for all kinds of work alike. A
// shape that is measured in one go has what these seconds were like, and a fit to such shapes finds, say,
// attention half as dear again. Visits that are spread over the whole time give all shapes the same share of
// slow seconds, and medians of visits have little of it.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/profile/core_share.h"
#include "worker/profile/measured_profile.h"
#include "worker/profile/part_figures.h"
#include "worker/profile/stage_run.h"
#include "worker/program/program.h"

namespace penstock::worker {

// A part of which fewer shapes were measured is not fitted well.
inline constexpr size_t kFewestShapes = 4;

// Of a layer: its forward pass, and every kind of backward pass behind it.
enum LayerKind : uint8_t { kPlain, kSplit, kSelective, kFull };
std::vector<PassKind> KindsOfLayer();

// Which figures of a micro-batch the time of a stage may depend on; `loss_tokens`: positions that the loss
// counts.
using FiguresOfStage = std::function<TokenFigures(const MicroBatch& shape, int64_t loss_tokens)>;

struct ShapeTimes {
  // Positions that the loss counts.
  int64_t loss_tokens = 0;
  // Of each kind of passes (visits_of_shape.h).
  std::vector<PassTimes> kinds;
};

struct VisitedShapes {
  // Of the first so many shapes.
  std::vector<ShapeTimes> shapes;
  Interference interference;
};

// Of the shapes, small ones first, those for which there is time and memory, at least four: first one visit
// each, with all `kinds` of passes, then more until the time is over (with the first kind and another one in
// turn), of the shapes that a fit to `figures` is least sure of (NextVisit); null: of all alike. Possible
// errors: those of the passes and of `kept`.
absl::StatusOr<VisitedShapes> VisitShapes(StageRun& run, absl::Span<const MicroBatch> shapes,
                                          absl::Span<const PassKind> kinds, FiguresOfStage figures,
                                          double budget_ns, const KeptPart& kept);

}  // namespace penstock::worker
