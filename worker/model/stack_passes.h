// The passes of a micro-batch through the layers of a stack. One in parts (worker/program/parts.h) goes part
// by part, in turn: each is computed until it has sent rows to experts or back, and while they travel the
// next one is (Jiang et al., "Lancet", MLSys 2024, section 5.2).
//
//   hidden = ForwardInTurn(stack, parts, levels, std::move(hidden), memory);
//   ...
//   gradient = BackwardInTurn(stack, parts, std::move(memory), std::move(gradient), source_gradient,
//   products);
//
// All ranks have the same parts, and so make all their exchanges in the same order.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "worker/model/block.h"
#include "worker/model/part_rows.h"
#include "worker/model/stage.h"
#include "worker/model/stage_parts.h"
#include "worker/model/weight_products.h"

namespace penstock::worker {

// What the layers keep of a part.
using StackMemory = std::vector<LayerMemory>;

// Whether a pass back will come. If not, each layer's memory is gone when the next one begins.
enum class PassBack : uint8_t { kComes, kDoesNotCome };

PartRows RowsOf(const std::vector<LayerContext>& parts);

// `parts`: what the layers see of each; one of a micro-batch without parts. `levels`: of each layer.
// `hidden`: [own tokens, hidden], those of one part after the other; so is the result, a tensor of its own
// unless the stack has no layer.
at::Tensor ForwardInTurn(const StackPart& stack, const std::vector<LayerContext>& parts,
                         const std::vector<Recompute>& levels, at::Tensor hidden,
                         std::vector<StackMemory>& memory, PassBack back = PassBack::kComes,
                         const ParametersNeeded& needed = {});

// The gradient of the input. `source_gradient`: as of LayerBackwardSteps. `parts`: those of the forward pass.
at::Tensor BackwardInTurn(const StackPart& stack, const std::vector<LayerContext>& parts,
                          std::vector<StackMemory> memory, at::Tensor gradient, at::Tensor& source_gradient,
                          WeightProducts& products);

// The same of a micro-batch in parts at once: `whole` is what the layers see of all of it. What a layer kept
// of the parts is joined (joined_layer.h) when it is the layer's turn.
at::Tensor BackwardAtOnce(const StackPart& stack, const std::vector<LayerContext>& parts,
                          const LayerContext& whole, std::vector<StackMemory> memory, at::Tensor gradient,
                          WeightProducts& products);

}  // namespace penstock::worker
