#include "worker/inference/sampling.h"

#include <ATen/ATen.h>

namespace penstock::worker {

int32_t Sampler::Choose(const at::Tensor& logits) {
  const at::Tensor values = logits.to(at::TensorOptions(at::kDouble).device(at::kCPU));
  if (options_.temperature == 0) return static_cast<int32_t>(values.argmax().item<int64_t>());
  const at::Tensor probabilities = (values / options_.temperature).softmax(0);
  const auto [sorted, tokens] = probabilities.sort(/*stable=*/true, /*dim=*/0, /*descending=*/true);
  const double* const share = sorted.const_data_ptr<double>();
  const int64_t* const token = tokens.const_data_ptr<int64_t>();
  int64_t count = 0;
  double together = 0;
  // The first one always.
  while (count < sorted.numel() && (count == 0 || together < options_.top_p)) together += share[count++];
  // Not std::uniform_real_distribution, of which libraries make different numbers.
  const double drawn = static_cast<double>(random_() >> 11) * 0x1p-53 * together;
  double passed = 0;
  for (int64_t i = 0; i < count; ++i) {
    passed += share[i];
    if (drawn < passed) return static_cast<int32_t>(token[i]);
  }
  return static_cast<int32_t>(token[count - 1]);
}

}  // namespace penstock::worker
