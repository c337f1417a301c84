// What a tensor rank has of a parameter, as a checkpoint sees it, and which elements this rank counts, so
// that each of the whole parameter is counted once over the tensor ranks: by the first that has it.
#pragma once

#include <vector>

#include "worker/checkpoint/tensor_piece.h"
#include "worker/model/flat_parameters.h"

namespace penstock::worker {

TensorSlice SliceOf(const NamedParameter& parameter, int tensor_rank);

// Of a span of the rank's part of a parameter, or of the flat buffers of a stage: the intervals of it that
// this tensor rank counts, ascending. What lies between parameters is 0, and may be in there.
std::vector<FlatSpan> CountedSpans(const ParameterPart& part, const FlatSpan& span, int tensor_rank);
std::vector<FlatSpan> CountedSpans(const FlatParameters& parameters, const FlatSpan& span, int tensor_rank);

}  // namespace penstock::worker
