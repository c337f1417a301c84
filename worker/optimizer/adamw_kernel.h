// AdamW's arithmetic on the CPU: one pass over weights, moments and gradients, with the widest vectors that
// the machine has. Every element's result depends on that element alone, bit for bit, whatever the vectors
// and however a buffer is divided. Without LibTorch.
#pragma once

#include <cstdint>

namespace penstock::worker {

// One step, as factors (Loshchilov and Hutter, "Decoupled Weight Decay Regularization", algorithm 2).
struct AdamWFactors {
  double beta1 = 0;
  double beta2 = 0;
  double epsilon = 0;
  // 1 - beta^step.
  double first_correction = 1;
  double second_correction = 1;
  double rate = 0;
  double weight_decay = 0;
  // Of the gradients; they are scaled on the way.
  double gradient_scale = 1;
};

// Elements that lie one after the other in each array. Arrays do not overlap.
template <typename Float>
struct AdamWArrays {
  Float* weights = nullptr;
  Float* first_moments = nullptr;
  Float* second_moments = nullptr;
  const Float* gradients = nullptr;
};

void UpdateWeights(const AdamWFactors& factors, const AdamWArrays<float>& arrays, int64_t count);
void UpdateWeights(const AdamWFactors& factors, const AdamWArrays<double>& arrays, int64_t count);

// In float64; the same bits on every machine.
double SumOfSquares(const float* values, int64_t count);
double SumOfSquares(const double* values, int64_t count);

}  // namespace penstock::worker
