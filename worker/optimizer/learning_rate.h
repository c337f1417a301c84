// The learning rate of an iteration. Without LibTorch.
#pragma once

#include <cstdint>

#include "worker/program/job.h"

namespace penstock::worker {

// Iterations count from 0. Warm-up: peak * (iteration + 1) / warmup_iterations, so that no iteration has rate
// 0. Then the decay from `peak` at warmup_iterations (of a cooldown: so many iterations before the end, or
// there, what is later) to `minimum` at decay_iterations (job.proto, RateDecay), and `minimum` after that.
// Without decay_iterations (0), and without a decay, the rate stays at `peak`.
double LearningRateAt(const LearningRateConfig& config, uint64_t iteration);

}  // namespace penstock::worker
