// Micro-batches whose rows are divided over context ranks, of which a single rank is measured. Without
// LibTorch; pure.
//
//   for (const MicroBatch& whole : ShapesToDivide(shapes, 4)) {
//     const MicroBatch divided = DividedShape(whole, 4);
//     const TokenFigures share = ShareFiguresOf(divided, MeasuredContext(4));   // as many tokens as `whole`
//   }
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "worker/profile/measured_profile.h"
#include "worker/profile/measured_shapes.h"
#include "worker/program/program.h"

namespace penstock::worker {

// The context rank that is measured: both of its chunks see keys of others, which those of the first rank do
// not, and it receives more of them than the last one.
inline int MeasuredContext(int contexts) { return contexts / 2; }

// `whole` with each of its samples `contexts` times, all of them over all context ranks. Each rank then has
// as many tokens as `whole` and as many squares, in so many times the rows. All layouts but concatenated
// rows.
MicroBatch DividedShape(const MicroBatch& whole, int contexts);

// Of the shapes, in their order, those whose rows are all long enough that plans divide such over `contexts`
// ranks.
std::vector<MicroBatch> ShapesToDivide(absl::Span<const MicroBatch> shapes, int contexts);
// So many tokens at least.
int64_t ShortestDividedRow(int contexts);

// What a context rank has of a shape with spans, as planners count it (execution.md, section 10): of each row
// that it has a part of, an equal part of its square; a packed row, and a call of its own, whatever the
// layout. And how many of them are divided.
TokenFigures ShareFiguresOf(const MicroBatch& shape, int context, const ShapeWindows& windows = {});

}  // namespace penstock::worker
