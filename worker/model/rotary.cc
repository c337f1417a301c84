#include "worker/model/rotary.h"

#include <ATen/ATen.h>

#include <cmath>
#include <utility>

#include "worker/torch/data_type.h"

namespace penstock::worker {
namespace {

// Between the wavelengths that stay and those that are stretched, both are blended.
double Llama3Angle(const RotaryConfig& config, double angle) {
  const double turns = static_cast<double>(config.original_max_sequence_length) * angle / (2 * M_PI);
  if (turns < config.low_frequency_factor) return angle / config.factor;
  if (turns > config.high_frequency_factor) return angle;
  const double share =
      (turns - config.low_frequency_factor) / (config.high_frequency_factor - config.low_frequency_factor);
  return (1 - share) * angle / config.factor + share * angle;
}

double Scaled(const RotaryConfig& config, double angle) {
  switch (config.scaling) {
    case RotaryScaling::kNone:
      return angle;
    case RotaryScaling::kLinear:
      return angle / config.factor;
    case RotaryScaling::kLlama3:
      return Llama3Angle(config, angle);
  }
  return angle;
}

}  // namespace

std::vector<double> RotaryAngles(const RotaryConfig& config, int64_t width) {
  std::vector<double> angles;
  for (int64_t i = 0; i < width / 2; ++i) {
    const double exponent = 2.0 * static_cast<double>(i) / static_cast<double>(width);
    angles.push_back(Scaled(config, std::pow(config.theta, -exponent)));
  }
  return angles;
}

RotaryTable MakeRotaryTable(const RotaryConfig& config, int64_t width, int64_t positions, at::ScalarType type,
                            at::Device device) {
  const at::TensorOptions options = at::TensorOptions(AccumulationType(type)).device(device);
  const at::Tensor angles =
      at::outer(at::arange(positions, at::kDouble), at::tensor(RotaryAngles(config, width), at::kDouble));
  return {angles.cos().to(options), angles.sin().to(options)};
}

void Rotate(const RotaryTable& table, const at::Tensor& positions, Turn turn, const at::Tensor& heads) {
  const int64_t half = table.cosine.size(1);
  const at::Tensor pairs = heads.view({heads.size(0), heads.size(1) / (2 * half), 2, half});
  const at::Tensor first = pairs.select(2, 0);
  const at::Tensor second = pairs.select(2, 1);
  const at::Tensor cosine = table.cosine.index_select(0, positions).unsqueeze(1);
  at::Tensor sine = table.sine.index_select(0, positions).unsqueeze(1);
  if (turn == Turn::kBackward) sine = sine.neg_();
  // In the type of the table, and rounded once.
  const at::Tensor turned = at::mul(first, cosine).sub_(at::mul(second, sine));
  second.copy_(at::mul(second, cosine).add_(at::mul(first, sine)));
  first.copy_(turned);
}

}  // namespace penstock::worker
