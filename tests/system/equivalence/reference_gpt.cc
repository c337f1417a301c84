// GPT (Radford et al. 2019): pre-norm blocks, learned positions, biases, GELU (or a gated one), a head of its
// own.
#include <ATen/ATen.h>

#include <cmath>

#include "tests/system/equivalence/reference_model.h"

namespace penstock::testing {
namespace {

at::Tensor LayerNorm(const at::Tensor& x, const ReferenceParameters& p, const std::string& name) {
  const at::Tensor centred = x - x.mean(-1, true);
  const at::Tensor variance = (centred * centred).mean(-1, true);
  return centred / (variance + 1e-5).sqrt() * p.at(name + ".weight") + p.at(name + ".bias");
}

// x: [length, hidden]. One head after the other; every token sees those before it in the row.
at::Tensor Attend(const at::Tensor& x, const ReferenceParameters& p, const std::string& layer,
                  const ReferenceModel& model) {
  const int64_t length = x.size(0);
  const at::Tensor qkv = Linear(x, p, layer + ".attention.qkv");
  const int64_t inner = qkv.size(1) / 3;
  const int64_t width = inner / model.heads;
  const at::Tensor future = at::ones({length, length}, at::kBool).triu(1);
  std::vector<at::Tensor> heads;
  for (int64_t head = 0; head < model.heads; ++head) {
    const auto part = [&](int64_t which) { return qkv.narrow(1, which * inner + head * width, width); };
    const at::Tensor scores = part(0).matmul(part(1).t()) / std::sqrt(static_cast<double>(width));
    heads.push_back(scores.masked_fill(future, -INFINITY).softmax(-1).matmul(part(2)));
  }
  return Linear(at::cat(heads, 1), p, layer + ".attention.output");
}

// [length, vocab]
at::Tensor Logits(const RowTokens& tokens, const ReferenceParameters& p, const ReferenceModel& model) {
  at::Tensor x = p.at("embedding.token.weight").index_select(0, at::tensor(tokens.ids, at::kLong)) +
                 p.at("embedding.position.weight").index_select(0, at::tensor(tokens.positions, at::kLong));
  for (int64_t i = 0; i < model.layers; ++i) {
    const std::string layer = "layers." + std::to_string(i);
    x = x + Attend(LayerNorm(x, p, layer + ".attention_norm"), p, layer, model);
    x = x + FeedForward(LayerNorm(x, p, layer + ".ffn_norm"), p, layer, model);
  }
  return Linear(LayerNorm(x, p, "final_norm"), p, "head");
}

}  // namespace

int64_t GptLossTokens(const ReferenceSample& sample) {
  const auto target = static_cast<int64_t>(sample.target.size());
  // The first token of a sample has none before it.
  return sample.input.empty() && target > 0 ? target - 1 : target;
}

at::Tensor GptRowLoss(const ReferenceRow& row, const ReferenceParameters& p, const ReferenceModel& model) {
  RowTokens tokens;
  std::vector<LossPosition> positions;
  for (const ReferenceSample& sample : row) {
    std::vector<int32_t> all = sample.input;
    all.insert(all.end(), sample.target.begin(), sample.target.end());
    const auto begin = static_cast<int64_t>(tokens.ids.size());
    const int64_t first = sample.input.empty() ? 1 : static_cast<int64_t>(sample.input.size());
    for (auto i = first; i < static_cast<int64_t>(all.size()); ++i) {
      positions.push_back({.position = begin + i - 1, .label = all[static_cast<size_t>(i)]});
    }
    tokens.Append(all);
  }
  if (positions.empty()) return {};
  return CrossEntropy(Logits(tokens, p, model), positions);
}

}  // namespace penstock::testing
