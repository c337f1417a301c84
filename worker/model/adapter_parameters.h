// The parameters of low-rank adapters, and which parameters of a stage learn.
//
//   for (const ParameterSpec& spec : TrainedParameterSpecs(config, range, place)) ...
//   for (const ParameterSpec& spec : FrozenParameterSpecs(config, range, place)) ...
#pragma once

#include <vector>

#include "worker/model/parameters.h"

namespace penstock::worker {

// Of each layer that the model's adapters name, in this order: of P.attention query, key, value and output,
// of P.cross (T5's decoder) the same, of P.ffn up, gate and down, where P is what names of the layer begin
// with:
//   P.attention.query.lora_a.weight [rank, inputs]
//   P.attention.query.lora_b.weight [outputs, rank]
// Queries, keys and values have adapters of their own although they are made by one matrix.
//
// A starts uniform in +-1 / sqrt(inputs), which is Kaiming's for a leaky ReLU of slope sqrt(5) (He et al.
// 2015, as PEFT has it), B at 0: at first the model is what it was.
//
// Tensor ranks divide what the layer divides, and have the other matrix whole. Of a layer whose outputs are
// divided that is A: each rank makes of all of A x its own outputs. Of one whose inputs are divided it is B:
// each makes B of its own part of A x, and the sum over the ranks that the layer makes anyway adds them up.
std::vector<ParameterSpec> AdapterSpecs(const ModelConfig& config, const StageRange& range,
                                        const GroupPlace& place = {});

// The adapters' where the model has some, else all (StageParameterSpecs).
std::vector<ParameterSpec> TrainedParameterSpecs(const ModelConfig& config, const StageRange& range,
                                                 const GroupPlace& place = {});
// All others.
std::vector<ParameterSpec> FrozenParameterSpecs(const ModelConfig& config, const StageRange& range,
                                                const GroupPlace& place = {});

}  // namespace penstock::worker
