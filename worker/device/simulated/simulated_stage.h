// A rank's part of a stage that computes nothing: its activations and gradients have the shapes of the
// model's and no storage, so that a model of any size runs on any machine.
//
// It has one parameter of one element for each layer, "layers.N.simulated", which stands for the layer's: so
// gradients are reduced, the optimizer steps, and checkpoints are written and read by the same code as ever.
// Gradients and the loss are 0.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/model/parameters.h"
#include "worker/model/stage.h"
#include "worker/program/group_place.h"
#include "worker/program/program.h"

namespace penstock::worker {

// Its parameters.
std::vector<ParameterSpec> SimulatedParameterSpecs(const StageRange& range);

// A tensor of this shape that holds one element. Must not be written to.
at::Tensor TensorWithoutStorage(at::IntArrayRef shape, DataType type);

// Possible errors: RESOURCE_EXHAUSTED (memory).
absl::StatusOr<std::unique_ptr<Stage>> MakeSimulatedStage(const ModelConfig& model, const StageRange& range,
                                                          const GroupPlace& place = {});

}  // namespace penstock::worker
