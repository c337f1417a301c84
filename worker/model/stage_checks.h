// What a stage refuses: wrong configurations, micro-batches and tensors, each with an error that names the
// field or tensor.
#pragma once

#include <ATen/core/Tensor.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "worker/model/stage.h"
#include "worker/program/program.h"

namespace penstock::worker {

// Possible errors of all: INVALID_ARGUMENT.
absl::Status CheckModelConfig(const ModelConfig& config);
absl::Status CheckStageRange(const ModelConfig& config, const StageRange& range);
// That `tensors` tensor ranks can divide the model; names the degrees next to it that can.
absl::Status CheckTensorRanks(const ModelConfig& config, int tensors);
// That stage groups of the model can have so many context ranks: a power of two, and of a T5 one.
absl::Status CheckContextRanks(const ModelConfig& config, int contexts);
// That the ranks of the stage group can divide the experts as `place` says.
absl::Status CheckExpertRanks(const ModelConfig& config, const GroupPlace& place);
// No sample is longer than the model's maximum.
absl::Status CheckLengths(const ModelConfig& config, const MicroBatch& shape);
// `what` names the tensor.
absl::Status CheckSizes(absl::string_view what, const at::Tensor& tensor, at::IntArrayRef expected);

}  // namespace penstock::worker
