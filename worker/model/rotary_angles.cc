// Angles of rotary positions and their scalings; what numbers mean is job.proto's, RotaryScaling.
#include <algorithm>
#include <cmath>

#include "worker/model/rotary.h"

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

// The pair, as a fraction, whose angle makes so many turns over the original length.
double PairOfTurns(const RotaryConfig& config, int64_t width, double turns) {
  const double original = static_cast<double>(config.original_max_sequence_length);
  return static_cast<double>(width) * std::log(original / (turns * 2 * M_PI)) / (2 * std::log(config.theta));
}

// Peng et al. 2023, "YaRN", section 3.2, with the ends of the ramp as its authors' code and transformers
// have them.
double YarnAngle(const RotaryConfig& config, int64_t width, int64_t pair, double angle) {
  double begin = PairOfTurns(config, width, config.beta_fast);
  double end = PairOfTurns(config, width, config.beta_slow);
  if (config.truncated) {
    begin = std::floor(begin);
    end = std::ceil(end);
  }
  begin = std::max(begin, 0.0);
  end = std::min(end, static_cast<double>(width - 1));
  if (begin == end) end += 0.001;
  const double divided = std::clamp((static_cast<double>(pair) - begin) / (end - begin), 0.0, 1.0);
  return divided * angle / config.factor + (1 - divided) * angle;
}

double ScaledAngle(const RotaryConfig& config, int64_t width, int64_t pair, double angle, bool long_sample) {
  switch (config.scaling) {
    case RotaryScaling::kNone:
      return angle;
    case RotaryScaling::kLinear:
      return angle / config.factor;
    case RotaryScaling::kLlama3:
      return Llama3Angle(config, angle);
    case RotaryScaling::kYarn:
      return YarnAngle(config, width, pair, angle);
    case RotaryScaling::kLongRope:
      return angle / (long_sample ? config.long_factors : config.short_factors)[static_cast<size_t>(pair)];
  }
  return angle;
}

}  // namespace

int64_t TurningWidth(const RotaryConfig& config, int64_t head_width) {
  return config.width > 0 ? config.width : head_width;
}

std::vector<double> RotaryAngles(const RotaryConfig& config, int64_t width, bool long_sample) {
  std::vector<double> angles;
  for (int64_t i = 0; i < width / 2; ++i) {
    const double exponent = 2.0 * static_cast<double>(i) / static_cast<double>(width);
    angles.push_back(ScaledAngle(config, width, i, std::pow(config.theta, -exponent), long_sample));
  }
  return angles;
}

int64_t RotaryRow(const RotaryConfig& config, int64_t positions, int64_t sample_tokens, int64_t position) {
  const bool is_long =
      config.scaling == RotaryScaling::kLongRope && sample_tokens > config.original_max_sequence_length;
  return is_long ? positions + position : position;
}

}  // namespace penstock::worker
