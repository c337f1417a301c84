#include "worker/model/norm.h"

#include <ATen/ATen.h>

#include <cmath>
#include <tuple>

#include "worker/torch/data_type.h"

namespace penstock::worker {
namespace {

at::Tensor RmsForward(const NormPart& part, const at::Tensor& input, NormStatistics& statistics) {
  const at::ScalarType wide = AccumulationType(input.scalar_type());
  const auto width = static_cast<double>(input.size(-1));
  const at::Tensor root = at::linalg_vector_norm(input, 2, at::IntArrayRef(-1), /*keepdim=*/true, wide);
  statistics.scale = root.square_().div_(width).add_(part.epsilon).rsqrt_();
  return at::mul(input, statistics.scale).to(input.scalar_type()).mul_(NormFactors(part));
}

at::Tensor RmsBackward(const NormPart& part, const at::Tensor& input, const NormStatistics& statistics,
                       const at::Tensor& output_gradient) {
  const at::ScalarType wide = AccumulationType(input.scalar_type());
  const at::Tensor normalised = at::mul(input, statistics.scale);
  if (part.weight.learns()) {
    part.weight.gradient.add_(
        at::mul(output_gradient, normalised).sum(at::IntArrayRef(0), /*keepdim=*/false, wide));
  }
  at::Tensor gradient = at::mul(output_gradient.to(wide), NormFactors(part));
  const at::Tensor along = at::mul(gradient, normalised).mean(-1, /*keepdim=*/true);
  gradient.sub_(normalised * along).mul_(statistics.scale);
  return gradient.to(input.scalar_type());
}

}  // namespace

at::Tensor NormFactors(const NormPart& part) {
  return part.offset ? at::add(part.weight.value, 1) : part.weight.value;
}

at::Tensor NormForward(const NormPart& part, const at::Tensor& input, NormStatistics& statistics) {
  if (part.kind == NormKind::kRms) return RmsForward(part, input, statistics);
  at::Tensor output;
  std::tie(output, statistics.mean, statistics.scale) = at::native_layer_norm(
      input, part.weight.value.sizes(), part.weight.value, part.bias.value, part.epsilon);
  return output;
}

at::Tensor NormBackward(const NormPart& part, const at::Tensor& input, const NormStatistics& statistics,
                        const at::Tensor& output_gradient) {
  if (part.kind == NormKind::kRms) return RmsBackward(part, input, statistics, output_gradient);
  const bool learns = part.weight.learns();
  auto [gradient, weight_gradient, bias_gradient] = at::native_layer_norm_backward(
      output_gradient, input, part.weight.value.sizes(), statistics.mean, statistics.scale, part.weight.value,
      part.bias.value, {true, learns, learns});
  if (!learns) return gradient;
  part.weight.gradient.add_(weight_gradient);
  part.bias.gradient.add_(bias_gradient);
  return gradient;
}

}  // namespace penstock::worker
