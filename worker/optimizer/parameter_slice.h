// What a rank holds of a parameter, as a checkpoint sees it, and which elements of it this rank counts, so
// that each of the whole parameter is counted once over the tensor ranks.
#pragma once

#include <vector>

#include "worker/checkpoint/tensor_piece.h"
#include "worker/model/flat_parameters.h"

namespace penstock::worker {

TensorSlice SliceOf(const NamedParameter& parameter);

// Of a span of the flat buffers: intervals of elements that this tensor rank counts, ascending; what lies
// between parameters is 0 and may be in there. The whole span where the stage is not divided over tensor
// ranks.
std::vector<FlatSpan> CountedSpans(const FlatParameters& parameters, const FlatSpan& span);

}  // namespace penstock::worker
