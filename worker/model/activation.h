// What stands between the linear layers of a feed-forward part.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace penstock::worker {

// kGelu: its tanh form. kSilu: x * sigmoid(x).
enum class Activation : uint8_t { kRelu, kGelu, kSilu };

at::Tensor Activate(Activation activation, const at::Tensor& input);

// The gradient of the input; of kRelu, `input` may be the result as well.
at::Tensor ActivationBackward(Activation activation, const at::Tensor& gradient, const at::Tensor& input);

}  // namespace penstock::worker
