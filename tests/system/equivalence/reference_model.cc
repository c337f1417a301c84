#include "tests/system/equivalence/reference_model.h"

#include <ATen/ATen.h>

#include <cmath>

namespace penstock::testing {
namespace {

at::Tensor Relu(const at::Tensor& x) { return x * (x > 0).to(at::kDouble); }

// By its approximation with tanh (Hendrycks and Gimpel 2016, section 2).
at::Tensor Gelu(const at::Tensor& x) {
  return 0.5 * x * (1 + (std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)).tanh());
}

}  // namespace

at::Tensor Linear(const at::Tensor& x, const ReferenceParameters& p, const std::string& name) {
  const at::Tensor product = x.matmul(p.at(name + ".weight").t());
  const auto bias = p.find(name + ".bias");
  return bias == p.end() ? product : product + bias->second;
}

at::Tensor RmsNorm(const at::Tensor& x, const ReferenceParameters& p, const std::string& name) {
  return x / ((x * x).mean(-1, true) + 1e-6).sqrt() * p.at(name + ".weight");
}

// GELU or SiLU gated by a second product: Shazeer 2020, "GLU Variants Improve Transformer".
at::Tensor FeedForward(const at::Tensor& x, const ReferenceParameters& p, const std::string& name,
                       const ReferenceModel& model) {
  const at::Tensor up = Linear(x, p, name + ".up");
  switch (model.feed_forward) {
    case ReferenceModel::FeedForward::kRelu:
      return Linear(Relu(up), p, name + ".down");
    case ReferenceModel::FeedForward::kGelu:
      return Linear(Gelu(up), p, name + ".down");
    case ReferenceModel::FeedForward::kGatedGelu:
      return Linear(Gelu(Linear(x, p, name + ".gate")) * up, p, name + ".down");
    case ReferenceModel::FeedForward::kGatedSilu: {
      const at::Tensor gate = Linear(x, p, name + ".gate");
      return Linear(gate * gate.sigmoid() * up, p, name + ".down");
    }
  }
  return {};
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
  for (const auto& [position, label, weight] : positions) loss = loss - weight * likelihoods[position][label];
  return loss;
}

}  // namespace penstock::testing
