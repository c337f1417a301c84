// What follows from a model's experts, and from which of its layers have some.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "penstock/v1/job.pb.h"
#include "planner/core/model/types.h"
#include "planner/core/topology/stage_list.h"

namespace penstock::core {

// Inner width of the feed-forward part of layers without experts.
inline uint32_t DenseWidth(const v1::ModelSpec& model) {
  return model.dense_ffn() > 0 ? model.dense_ffn() : model.ffn();
}

LayerOrder LayerOrderOf(const v1::ModelSpec& model);

// What experts keep, exchange and have of parameters.
void ReadExperts(const v1::ModelSpec& model, Job* job);

// The profile has figures of layers without experts if the model has such layers, and of none otherwise.
// Possible errors: INVALID_ARGUMENT.
absl::Status CheckProfiledLayers(const v1::JobSpec& job);

}  // namespace penstock::core
