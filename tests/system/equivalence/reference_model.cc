#include "tests/system/equivalence/reference_model.h"

#include <ATen/ATen.h>

#include <cmath>

namespace penstock::testing {

at::Tensor Linear(const at::Tensor& x, const ReferenceParameters& p, const std::string& name) {
  const at::Tensor product = x.matmul(p.at(name + ".weight").t());
  const auto bias = p.find(name + ".bias");
  return bias == p.end() ? product : product + bias->second;
}

at::Tensor Relu(const at::Tensor& x) { return x * (x > 0).to(at::kDouble); }

at::Tensor Gelu(const at::Tensor& x) {
  return 0.5 * x * (1 + (std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)).tanh());
}

void RowTokens::Append(const std::vector<int32_t>& sample) {
  for (size_t i = 0; i < sample.size(); ++i) {
    ids.push_back(sample[i]);
    positions.push_back(static_cast<int64_t>(i));
  }
}

at::Tensor CrossEntropy(const at::Tensor& logits, const std::vector<LossPosition>& positions) {
  const at::Tensor likelihoods = logits.log_softmax(-1);
  at::Tensor loss = at::zeros({}, at::kDouble);
  for (const auto& [position, label] : positions) loss = loss - likelihoods[position][label];
  return loss;
}

}  // namespace penstock::testing
