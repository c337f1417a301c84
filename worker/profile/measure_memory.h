// Bytes that a layer keeps between its passes, and takes while they run, by the statistics of the allocator
// (worker/memory/tensor_memory.h), in place of those that are counted from its tensors (memory.h).
//
//   PENSTOCK_ASSIGN_OR_RETURN(layer.bytes, MeasureLayerBytes(run, MemoryShapes(shapes), figures, counted,
//                                                            longest, budget_ns, kept));
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/profile/measured_profile.h"
#include "worker/profile/part_figures.h"
#include "worker/profile/shape_visits.h"
#include "worker/profile/stage_run.h"
#include "worker/program/program.h"

namespace penstock::worker {

struct BytesPoint {
  TokenFigures tokens;
  double bytes = 0;
};

// Bytes for each source and target token that no point is above: the line through the origin with the least
// sum of squared relative errors and no negative side, raised to the point that is farthest above it. Where
// the points do not tell the two sides apart, `counted` so raised, or lowered. No points: `counted`.
TokenBytes BytesAbove(absl::Span<const BytesPoint> points, const TokenBytes& counted);

// Of `shapes`, ascending in their tokens: a sample of the length `longest` alone, of whose scores there are
// most for each token, and then the largest few that take little time and have so many tokens that what does
// not grow with them hardly counts.
std::vector<MicroBatch> MemoryShapes(absl::Span<const MicroBatch> shapes, int64_t longest);

// Of the stage's only layer, in the largest of its shapes, with every level of recompute and with backward
// passes whole and in two; a level's peak is the largest of all. `counted` stands for what cannot be
// measured: it is the result where no tensors are counted or `shapes` is empty, and peaks are no less than it
// says where no sample of the length `longest` was alone, for they may grow faster than tokens. Two shapes at
// least, and more for as long as there is time. Possible errors: those of the passes and of `kept`.
absl::StatusOr<LayerBytes> MeasureLayerBytes(StageRun& run, absl::Span<const MicroBatch> shapes,
                                             const FiguresOfStage& figures, const LayerBytes& counted,
                                             int64_t longest, double budget_ns, const KeptPart& kept);

// The larger of each of them.
LayerBytes LargerOf(const LayerBytes& one, const LayerBytes& other);

// "peak 0.87, stored_none 1.08 times what is counted", of figures of a token of each side that differ by more
// than a few per cent; empty: none does.
std::string DifferencesOf(const LayerBytes& measured, const LayerBytes& counted);

}  // namespace penstock::worker
