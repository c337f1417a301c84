#include "planner/core/schedule/pass_noise.h"

#include <cmath>
#include <numbers>

namespace penstock::core {
namespace {

constexpr int kQuantileBits = 10;
constexpr size_t kQuantiles = size_t{1} << kQuantileBits;
// Factors are multiples of this: the last digits of exp differ between libraries, and plans must not.
constexpr double kFactorUnit = 0x1p-30;
// Each step doubles the digits, and they begin at the quantile before.
constexpr int kNewtonSteps = 8;

// splitmix64's mixing (Steele, Lea and Flood 2014).
uint64_t Mixed(uint64_t value) {
  value += 0x9e3779b97f4a7c15u;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

// Of the normal distribution, ascending: the middles of as many parts that are equally likely. Newton's
// method from each to the next, away from 0, where the distribution is concave and no step goes too far.
std::vector<double> NormalQuantiles() {
  std::vector<double> quantiles(kQuantiles);
  constexpr size_t kHalf = kQuantiles / 2;
  double normal = 0;
  for (size_t i = 0; i < kHalf; ++i) {
    const double wanted = 0.5 + (static_cast<double>(i) + 0.5) / kQuantiles;
    for (int step = 0; step < kNewtonSteps; ++step) {
      const double below = 1 - std::erfc(normal / std::numbers::sqrt2) / 2;
      const double density = std::exp(-normal * normal / 2) / std::sqrt(2 * std::numbers::pi);
      normal += (wanted - below) / density;
    }
    quantiles[kHalf + i] = normal;
    quantiles[kHalf - 1 - i] = -normal;
  }
  return quantiles;
}

uint64_t KindNumber(PassKind kind) {
  if (kind == PassKind::kForward) return 0;
  return kind == PassKind::kBackwardWeight ? 2 : 1;
}

}  // namespace

uint64_t NoiseSeed(absl::Span<const SampleTokens> tokens) {
  uint64_t seed = tokens.size();
  for (const SampleTokens& sample : tokens)
    seed = Mixed(seed ^ (uint64_t{sample.source} << 32 | uint64_t{sample.target}));
  return seed;
}

PassNoise::PassNoise(double deviation, uint64_t seed) : seed_(seed) {
  static const std::vector<double>* const kNormal = new std::vector<double>(NormalQuantiles());
  double mean = 0;
  for (const double normal : *kNormal) {
    factors_.push_back(std::exp(deviation * normal));
    mean += factors_.back() / kQuantiles;
  }
  for (double& factor : factors_) factor = std::round(factor / mean / kFactorUnit) * kFactorUnit;
}

NoiseStream PassNoise::StreamOf(int draw, int replica, int stage) const {
  const uint64_t place = uint64_t{static_cast<uint32_t>(replica)} << 32 | static_cast<uint32_t>(stage);
  return {.seed = Mixed(Mixed(seed_ ^ static_cast<uint64_t>(draw / 2)) ^ place), .mirrored = draw % 2 != 0};
}

double PassNoise::Factor(const NoiseStream& stream, int32_t micro_batch, PassKind kind) const {
  const uint64_t pass = uint64_t{static_cast<uint32_t>(micro_batch)} << 2 | KindNumber(kind);
  const uint64_t quantile = Mixed(stream.seed ^ pass) >> (64 - kQuantileBits);
  return factors_[stream.mirrored ? kQuantiles - 1 - quantile : quantile];
}

}  // namespace penstock::core
