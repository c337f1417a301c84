// Low-rank adapters of a model: whether a job may have them, and how many elements they have.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "penstock/v1/job.pb.h"

namespace penstock::core {

// Possible errors: INVALID_ARGUMENT (names the field).
absl::Status CheckAdapters(const v1::ModelSpec& model);

// Whether the feed-forward part has three matrices.
bool IsGated(const v1::ModelSpec& model);

// Of the adapters of one layer, on one of so many tensor ranks (execution.md, section 7). `cross`: of a T5's
// decoder, which has two attentions. 0 where the model has none. The model and the tensor ranks are such that
// a job may have them.
int64_t AdapterElements(const v1::ModelSpec& model, bool cross, uint32_t tensors);

// Of the matrices of all linear layers of a layer: multiplications for a token, of its own side.
int64_t LinearElements(const v1::ModelSpec& model, bool cross);

}  // namespace penstock::core
