// What crosses a boundary between stages, taken apart into the streams of tokens that the parts of a model
// see.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "worker/model/attention_shape.h"
#include "worker/program/group_place.h"
#include "worker/program/program.h"

namespace penstock::worker {

// Activations, or gradients, between two parts of the model, [own tokens, hidden] each. `source` is T5's
// encoder's; undefined where there is none.
struct Streams {
  at::Tensor source;
  at::Tensor target;
};

// `boundary`: what crosses before layer `layer` of the model (boundary_shape.h).
Streams SplitBoundary(const ModelConfig& config, const MicroBatchAttention& attention,
                      const GroupPlace& place, const at::Tensor& boundary, int64_t layer);
// The way back, to a tensor of `sizes`.
at::Tensor JoinStreams(const ModelConfig& config, const MicroBatchAttention& attention,
                       const GroupPlace& place, Streams streams, int64_t layer, at::IntArrayRef sizes);

}  // namespace penstock::worker
