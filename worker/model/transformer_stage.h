// Makes the stages of the Transformers that this worker trains.
//
//   PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<Stage> stage, MakeTransformerStage(config, range, seed,
//   device));
//
// One kind of stage serves all models (worker/model/architecture.h). A decoder-only model's stages pass one
// activation on, T5's encoder stages likewise, and a stage behind T5's first decoder layer passes on the
// encoder's output and the decoder's activation as one flat vector, with their gradients coming back as
// another.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "worker/model/flat_parameters.h"
#include "worker/model/parameters.h"
#include "worker/model/stage.h"
#include "worker/model/stage_group.h"
#include "worker/program/program.h"

namespace penstock::worker {

// Initial values are a function of (seed, parameter name, shape) alone: the same model for every split.
// Without a seed parameters are 0 until somebody fills them. The last stage runs the head, and its backward
// pass with that of the final norm, already in Forward (worker/model/loss_head.h). A rank of a stage group,
// which outlives the stage, computes its share of the tokens; the losses and gradients of the context ranks
// add up to those of the undivided stage. `bucket_bytes`: see MakeFlatParameters. Possible errors:
// INVALID_ARGUMENT (names the field of `config` or `range`), RESOURCE_EXHAUSTED (memory).
absl::StatusOr<std::unique_ptr<Stage>> MakeTransformerStage(const ModelConfig& config,
                                                            const StageRange& range,
                                                            std::optional<uint64_t> seed, at::Device device,
                                                            StageGroup& group = SoleRank(),
                                                            int64_t bucket_bytes = kBucketBytes);

}  // namespace penstock::worker
