// Layer norm (Ba, Kiros and Hinton, 2016) and RMS norm (Zhang and Sennrich, 2019) over the last dimension.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "worker/model/linear.h"

namespace penstock::worker {

enum class NormKind : uint8_t { kLayer, kRms };

struct NormPart {
  NormKind kind = NormKind::kLayer;
  double epsilon = 1e-5;
  // RMS norm alone: it multiplies by 1 + weight.
  bool offset = false;
  Parameter weight;
  // Layer norm alone.
  Parameter bias;
};

// A number or two for each token, for the backward pass.
struct NormStatistics {
  // Layer norm alone.
  at::Tensor mean;
  // 1 / standard deviation, or 1 / root of the mean square.
  at::Tensor scale;
};

// What an RMS norm multiplies by.
at::Tensor NormFactors(const NormPart& part);

// `input`: [tokens, hidden]; so is the result.
at::Tensor NormForward(const NormPart& part, const at::Tensor& input, NormStatistics& statistics);

// Adds to the gradients of parameters that learn and returns that of the input, a tensor of its own.
at::Tensor NormBackward(const NormPart& part, const at::Tensor& input, const NormStatistics& statistics,
                        const at::Tensor& output_gradient);

}  // namespace penstock::worker
