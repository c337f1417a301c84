// Gradients of what several tensor ranks have: norms, biases behind a sum over the ranks, learned positions,
// heads of keys and values that are repeated. Each rank makes its own part of such a gradient, and what
// counts is their sum.
#pragma once

#include "worker/model/flat_parameters.h"
#include "worker/model/stage_group.h"

namespace penstock::worker {

// Of the parameters that lie in a span of the flat buffers: afterwards the gradients of what several tensor
// ranks have are the same on all of them, in every bit. One exchange, or none where the span has no such
// parameter: all tensor ranks call it with their spans in the same order. Once, before anything else is done
// with the gradients. An error is in group.status(). Throws what LibTorch throws.
void SumWholeGradients(const FlatParameters& parameters, const FlatSpan& span, StageGroup& group);

}  // namespace penstock::worker
