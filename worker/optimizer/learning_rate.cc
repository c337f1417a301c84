#include "worker/optimizer/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace penstock::worker {

namespace {

// Where the rate begins to fall.
uint64_t BeginOfDecay(const LearningRateConfig& config) {
  if (config.decay != RateDecay::kCooldown) return config.warmup_iterations;
  const uint64_t cooldown = std::min(config.cooldown_iterations, config.decay_iterations);
  return std::max(config.warmup_iterations, config.decay_iterations - cooldown);
}

// Of the way from the minimum up to the peak, at `progress` from 0 to 1 of the decay.
double ShareLeft(RateDecay decay, double progress) {
  return decay == RateDecay::kCosine ? 0.5 * (1 + std::cos(std::numbers::pi * progress)) : 1 - progress;
}

}  // namespace

double LearningRateAt(const LearningRateConfig& config, uint64_t iteration) {
  if (iteration < config.warmup_iterations) {
    return config.peak * static_cast<double>(iteration + 1) / static_cast<double>(config.warmup_iterations);
  }
  if (config.decay_iterations == 0 || config.decay == RateDecay::kConstant) return config.peak;
  if (iteration >= config.decay_iterations) return config.minimum;
  const uint64_t begin = BeginOfDecay(config);
  if (iteration < begin) return config.peak;
  const double progress =
      static_cast<double>(iteration - begin) / static_cast<double>(config.decay_iterations - begin);
  return config.minimum + (config.peak - config.minimum) * ShareLeft(config.decay, progress);
}

}  // namespace penstock::worker
