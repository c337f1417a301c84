// Which token comes next.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <random>

namespace penstock::worker {

struct SamplingOptions {
  // 0: always the most probable token.
  double temperature = 0;
  // Of the tokens by falling probability, as many as have this share of it together (nucleus sampling,
  // Holtzman et al. 2020); 1: all.
  double top_p = 1;
  uint64_t seed = 1;
};

class Sampler {
 public:
  explicit Sampler(const SamplingOptions& options) : options_(options), random_(options.seed) {}

  // `logits`: [vocab]. The same seed and logits give the same tokens. Throws what LibTorch throws.
  int32_t Choose(const at::Tensor& logits);

 private:
  const SamplingOptions options_;
  std::mt19937_64 random_;
};

}  // namespace penstock::worker
