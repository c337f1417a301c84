// What noise makes of the times of a pipeline's passes: the same draws for every plan that is compared.
//
//   const PassNoise noise(0.2, NoiseSeed(tokens));
//   duration * noise.Factor(noise.StreamOf(/*draw=*/3, replica, stage), micro_batch, pass.kind);
//
// Each pass has a factor of its own, log-normal of mean 1, whoever runs beside it. What is common to an
// iteration, or to a rank, is not noise here: it makes all plans longer by as much, or is a slow rank, which
// plans know of. What is left comes and goes from pass to pass (a cache, a neighbour, a shape that the costs
// do not quite foretell), and a pipeline feels it because ranks run their passes in the order that was
// planned: whoever comes late has all others wait, and nobody gets that back by being early. A log-normal
// factor is never below 0, and twice as long is as likely as half as long.
//
// Draws are numbers, not a sequence: a factor follows from its key alone, so that neither threads nor the
// order of questions matter, and plans of one batch are compared under the same ones (common random numbers).
// Every second draw mirrors the one before it (antithetic variates): means of few draws are nearer the true
// ones.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "planner/core/model/types.h"
#include "planner/core/schedule/pipeline.h"

namespace penstock::core {

// Follows from the samples of a batch, so that batches have draws of their own.
uint64_t NoiseSeed(absl::Span<const SampleTokens> tokens);

// Where the factors of a stage of a replica come from, in one draw.
struct NoiseStream {
  uint64_t seed = 0;
  bool mirrored = false;
};

class PassNoise {
 public:
  // `deviation`: of the logarithm of a factor, above 0, at most 1 (CostProfile.pass_noise).
  PassNoise(double deviation, uint64_t seed);

  NoiseStream StreamOf(int draw, int replica, int stage) const;
  // `micro_batch`: its place in the order in which the replica's enter the pipeline. A backward pass has one
  // factor whether it is whole or the first part of a split one.
  double Factor(const NoiseStream& stream, int32_t micro_batch, PassKind kind) const;

 private:
  uint64_t seed_;
  // As many quantiles of the factor, all as likely.
  std::vector<double> factors_;
};

}  // namespace penstock::core
