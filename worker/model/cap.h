// Values x that become cap * tanh(x / cap), of scores and of logits (Bello et al., "Neural combinatorial
// optimization", 2016, section 4.2; Gemma 2).
#pragma once

#include <ATen/core/Tensor.h>

namespace penstock::worker {

// In place; a cap of 0 leaves them. `slope`, unless null: becomes the derivative, and stays undefined where
// there is no cap.
void CapInPlace(double cap, const at::Tensor& values, at::Tensor* slope = nullptr);

}  // namespace penstock::worker
