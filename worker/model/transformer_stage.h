// Makes the stages of the Transformers that this worker trains.
//
//   PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<Stage> stage, MakeTransformerStage(config, range, seed,
//   device));
//
// A GPT: token and learned position embedding (first stage), pre-norm blocks with causal attention, final
// norm, untied LM head and loss (last stage).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "worker/model/parameters.h"
#include "worker/model/stage.h"
#include "worker/program/program.h"

namespace penstock::worker {

// Initial values are a function of (seed, parameter name, shape) alone: the same model for every split.
// The last stage adds the gradient of head.weight already in Forward (worker/model/loss_head.h).
// Possible errors: INVALID_ARGUMENT (names the field of `config` or `range`), RESOURCE_EXHAUSTED (memory).
absl::StatusOr<std::unique_ptr<Stage>> MakeTransformerStage(const ModelConfig& config,
                                                            const StageRange& range, uint64_t seed,
                                                            at::Device device);

}  // namespace penstock::worker
