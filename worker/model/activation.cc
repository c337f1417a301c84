#include "worker/model/activation.h"

#include <ATen/ATen.h>

namespace penstock::worker {
namespace {

constexpr const char* kTanh = "tanh";

}  // namespace

at::Tensor Activate(Activation activation, const at::Tensor& input) {
  switch (activation) {
    case Activation::kRelu:
      return at::relu(input);
    case Activation::kGelu:
      return at::gelu(input, kTanh);
    case Activation::kSilu:
      return at::silu(input);
  }
  return {};
}

at::Tensor ActivationBackward(Activation activation, const at::Tensor& gradient, const at::Tensor& input) {
  switch (activation) {
    case Activation::kRelu:
      return at::threshold_backward(gradient, input, 0);
    case Activation::kGelu:
      return at::gelu_backward(gradient, input, kTanh);
    case Activation::kSilu:
      return at::silu_backward(gradient, input);
  }
  return {};
}

}  // namespace penstock::worker
