#include "worker/optimizer/adamw_kernel.h"

#include <cmath>

namespace penstock::worker {
namespace {

// As one type: factors are rounded once, not with every element.
template <typename Float>
struct Rounded {
  explicit Rounded(const AdamWFactors& factors)
      : beta1(static_cast<Float>(factors.beta1)),
        beta2(static_cast<Float>(factors.beta2)),
        to_first(static_cast<Float>((1 - factors.beta1) * factors.gradient_scale)),
        to_second(static_cast<Float>((1 - factors.beta2) * factors.gradient_scale * factors.gradient_scale)),
        epsilon(static_cast<Float>(factors.epsilon)),
        second_correction(static_cast<Float>(factors.second_correction)),
        keep(static_cast<Float>(1 - factors.rate * factors.weight_decay)),
        rate(static_cast<Float>(factors.rate / factors.first_correction)) {}

  const Float beta1;
  const Float beta2;
  const Float to_first;
  const Float to_second;
  const Float epsilon;
  const Float second_correction;
  const Float keep;
  const Float rate;
};

template <typename Float>
[[gnu::always_inline]] inline void Update(const Rounded<Float>& factors, const AdamWArrays<Float>& arrays,
                                          int64_t count) {
  Float* __restrict__ const weights = arrays.weights;
  Float* __restrict__ const first_moments = arrays.first_moments;
  Float* __restrict__ const second_moments = arrays.second_moments;
  const Float* __restrict__ const gradients = arrays.gradients;
  for (int64_t i = 0; i < count; ++i) {
    const Float gradient = gradients[i];
    const Float first = factors.beta1 * first_moments[i] + factors.to_first * gradient;
    const Float second = factors.beta2 * second_moments[i] + factors.to_second * (gradient * gradient);
    const Float deviation = std::sqrt(second / factors.second_correction) + factors.epsilon;
    first_moments[i] = first;
    second_moments[i] = second;
    weights[i] = factors.keep * weights[i] - factors.rate * first / deviation;
  }
}

// So many sums side by side that a vector of them is whole on every machine, and their order the same.
constexpr int64_t kLanes = 16;

template <typename Float>
[[gnu::always_inline]] inline double Squares(const Float* values, int64_t count) {
  double lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const auto value = static_cast<double>(values[i + lane]);
      lanes[lane] += value * value;
    }
  }
  for (int64_t lane = 0; i < count; ++i, ++lane) {
    const auto value = static_cast<double>(values[i]);
    lanes[lane] += value * value;
  }
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

// The same code for machines with wider vectors. A vector unit rounds as a scalar one does, and nothing is
// contracted (cmake/Compiler.cmake), so all of them give the same bits.
#if defined(__x86_64__)
template <typename Float>
[[gnu::target("avx2")]] void UpdateWide(const Rounded<Float>& factors, const AdamWArrays<Float>& arrays,
                                        int64_t count) {
  Update(factors, arrays, count);
}

template <typename Float>
[[gnu::target("avx2")]] double SquaresWide(const Float* values, int64_t count) {
  return Squares(values, count);
}

bool HasWideVectors() {
  static const bool has = __builtin_cpu_supports("avx2") != 0;
  return has;
}
#else
template <typename Float>
void UpdateWide(const Rounded<Float>& factors, const AdamWArrays<Float>& arrays, int64_t count) {
  Update(factors, arrays, count);
}

template <typename Float>
double SquaresWide(const Float* values, int64_t count) {
  return Squares(values, count);
}

bool HasWideVectors() { return true; }
#endif

template <typename Float>
void UpdateBest(const AdamWFactors& factors, const AdamWArrays<Float>& arrays, int64_t count) {
  const Rounded<Float> rounded(factors);
  if (HasWideVectors()) return UpdateWide(rounded, arrays, count);
  Update(rounded, arrays, count);
}

template <typename Float>
double SquaresBest(const Float* values, int64_t count) {
  return HasWideVectors() ? SquaresWide(values, count) : Squares(values, count);
}

}  // namespace

void UpdateWeights(const AdamWFactors& factors, const AdamWArrays<float>& arrays, int64_t count) {
  UpdateBest(factors, arrays, count);
}

void UpdateWeights(const AdamWFactors& factors, const AdamWArrays<double>& arrays, int64_t count) {
  UpdateBest(factors, arrays, count);
}

double SumOfSquares(const float* values, int64_t count) { return SquaresBest(values, count); }

double SumOfSquares(const double* values, int64_t count) { return SquaresBest(values, count); }

}  // namespace penstock::worker
