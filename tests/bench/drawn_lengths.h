// Lengths of a distribution that is itself drawn at random: what an estimate meets that was tuned on nothing
// of the kind. The same for the same seed.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "penstock/v1/plan.pb.h"

namespace penstock::core {

// Tokens of `samples` samples: log-normal, uniform, of two lengths, or with the tail of a power law; in order
// of arrival or, one time in four, ascending.
inline std::vector<double> DrawLengths(uint64_t seed, int64_t samples) {
  constexpr double kShortest = 4;
  constexpr double kLongest = 8192;
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> share(0, 1);
  std::normal_distribution<double> normal(0, 1);
  const uint64_t kind = random() % 4;
  const bool ascending = random() % 4 == 0;
  const double low = 16 * std::pow(64, share(random));
  const double typical = 64 * std::pow(32, share(random));
  const double spread = 0.2 + 1.2 * share(random);
  const double share_of_low = share(random);
  const auto draw = [&] {
    switch (kind) {
      case 0:
        return typical * std::exp(spread * normal(random));
      case 1:
        return low + 4 * typical * share(random);
      case 2:
        return share(random) < share_of_low ? low : 2 * typical;
      default:
        return low * std::pow(1 - share(random), -1 / (1 + spread));
    }
  };
  std::vector<double> lengths;
  for (int64_t i = 0; i < samples; ++i) lengths.push_back(std::clamp(draw(), kShortest, kLongest));
  if (ascending) std::sort(lengths.begin(), lengths.end());
  return lengths;
}

inline v1::Batch DrawnBatch(uint64_t seed, int64_t samples) {
  v1::Batch batch;
  for (const double length : DrawLengths(seed, samples))
    batch.add_samples()->set_target_tokens(static_cast<uint32_t>(length));
  return batch;
}

}  // namespace penstock::core
