#include "worker/optimizer/learning_rate.h"

#include <cmath>
#include <numbers>

namespace penstock::worker {

double LearningRateAt(const LearningRateConfig& config, uint64_t iteration) {
  if (iteration < config.warmup_iterations) {
    return config.peak * static_cast<double>(iteration + 1) / static_cast<double>(config.warmup_iterations);
  }
  if (config.decay_iterations == 0) return config.peak;
  if (iteration >= config.decay_iterations) return config.minimum;
  const double progress = static_cast<double>(iteration - config.warmup_iterations) /
                          static_cast<double>(config.decay_iterations - config.warmup_iterations);
  return config.minimum + (config.peak - config.minimum) * 0.5 * (1 + std::cos(std::numbers::pi * progress));
}

}  // namespace penstock::worker
