// What a layer kept of the parts of a micro-batch (worker/program/parts.h), as if it had been whole: for a
// backward pass that goes through it at once, with larger products, behind a forward pass in parts.
//
//   LayerBackwardSteps steps(part, whole, JoinLayer(part, parts, whole, std::move(of_parts)), gradient,
//                            source_gradient, products);
//
// Where one tensor rank has all tokens, those of one part follow those of the part before it, as the whole's
// own do.
#pragma once

#include <vector>

#include "worker/model/block.h"

namespace penstock::worker {

// `parts` and `whole`: what the layer sees of each part, and of the whole. Not of layers with
// cross-attention. Tensors of parts are gone one after the other, so that no more than one is there twice.
LayerMemory JoinLayer(const LayerPart& part, const std::vector<LayerContext>& parts,
                      const LayerContext& whole, std::vector<LayerMemory> of_parts);

}  // namespace penstock::worker
