// GPT (Radford et al. 2019): pre-norm blocks, learned positions, biases, GELU (or a gated one), a head of its
// own or the embedding as head. Llama (Touvron et al. 2023): the same with RMS norms, rotary positions,
// SwiGLU, grouped queries and no biases. Mixtral (Jiang et al. 2024) and Qwen3: with experts, and with norms
// of queries and keys. Qwen2-MoE and OLMoE: a shared expert, clipped heads, and losses of routers.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "tests/system/equivalence/reference_model.h"

namespace penstock::testing {
namespace {

at::Tensor LayerNorm(const at::Tensor& x, const ReferenceParameters& p, const std::string& name) {
  const at::Tensor centred = x - x.mean(-1, true);
  const at::Tensor variance = (centred * centred).mean(-1, true);
  return centred / (variance + 1e-5).sqrt() * p.at(name + ".weight") + p.at(name + ".bias");
}

at::Tensor Norm(const at::Tensor& x, const ReferenceParameters& p, const std::string& name,
                const ReferenceModel& model) {
  return model.rms_norm ? RmsNorm(x, p, name) : LayerNorm(x, p, name);
}

// One head of queries or keys, [length, width]: the pair of elements (i, i + width/2) is turned by an angle
// in proportion to the position, as a product with [[cos, -sin], [sin, cos]].
at::Tensor Turn(const at::Tensor& head, const std::vector<int64_t>& positions, const ReferenceModel& model) {
  if (model.rotary_theta == 0) return head;
  const int64_t half = head.size(1) / 2;
  const at::Tensor exponents = at::arange(half, at::kDouble) * (-1.0 / static_cast<double>(half));
  const at::Tensor angles = at::tensor(positions, at::kLong).to(at::kDouble).unsqueeze(1) *
                            at::pow(model.rotary_theta, exponents) / model.rotary_factor;
  const at::Tensor left = head.narrow(1, 0, half);
  const at::Tensor right = head.narrow(1, half, half);
  return at::cat({left * angles.cos() - right * angles.sin(), left * angles.sin() + right * angles.cos()}, 1);
}

at::Tensor NormedHead(const at::Tensor& head, const ReferenceParameters& p, const std::string& name,
                      const ReferenceModel& model) {
  return model.head_norms ? RmsNorm(head, p, name) : head;
}

// Of a sample's tokens, [tokens, experts]: how many go to each expert.
std::vector<double> CountRows(const at::Tensor& scores, const ReferenceModel& model) {
  std::vector<double> counts(static_cast<size_t>(model.experts));
  for (int64_t token = 0; token < scores.size(0); ++token) {
    const at::Tensor order = scores[token].detach().argsort(-1, /*descending=*/true);
    for (int64_t i = 0; i < model.experts_per_token; ++i)
      counts[static_cast<size_t>(order[i].item<int64_t>())] += 1;
  }
  return counts;
}

// A sample's losses of one router, times its tokens.
at::Tensor RouterLosses(const at::Tensor& scores, const ReferenceModel& model) {
  const auto tokens = static_cast<double>(scores.size(0));
  const std::vector<double> counts = CountRows(scores, model);
  const at::Tensor probabilities = scores.exp() / scores.exp().sum(-1, true);
  at::Tensor balance = at::zeros({}, scores.options());
  for (int64_t expert = 0; expert < model.experts; ++expert) {
    const double share =
        counts[static_cast<size_t>(expert)] / (tokens * static_cast<double>(model.experts_per_token));
    balance = balance + share * probabilities.select(1, expert).mean();
  }
  const at::Tensor squares = scores.exp().sum(-1).log().square().sum();
  return model.router_balance_loss * tokens * static_cast<double>(model.experts) * balance +
         model.router_z_loss * squares;
}

// Where each sample of the row ends.
std::vector<int64_t> SampleEnds(const RowTokens& tokens) {
  std::vector<int64_t> ends;
  // Positions begin anew with each sample.
  for (size_t i = 1; i < tokens.positions.size(); ++i)
    if (tokens.positions[i] == 0) ends.push_back(static_cast<int64_t>(i));
  ends.push_back(static_cast<int64_t>(tokens.positions.size()));
  return ends;
}

// Adds those of all samples of the row to `losses`.
void AddRouterLosses(const at::Tensor& scores, const RowTokens& tokens, const ReferenceModel& model,
                     at::Tensor& losses) {
  if (model.router_balance_loss == 0 && model.router_z_loss == 0) return;
  int64_t begin = 0;
  for (const int64_t end : SampleEnds(tokens)) {
    const at::Tensor loss = RouterLosses(scores.narrow(0, begin, end - begin), model);
    losses = losses.defined() ? losses + loss : loss;
    begin = end;
  }
}

// [token][choice]: whether the expert has no room for it. Sample by sample, first choices first.
std::vector<std::vector<bool>> Dropped(const at::Tensor& scores, const RowTokens& tokens,
                                       const ReferenceModel& model) {
  const auto per_token = static_cast<size_t>(model.experts_per_token);
  std::vector<std::vector<bool>> dropped(static_cast<size_t>(scores.size(0)), std::vector<bool>(per_token));
  if (model.expert_capacity_factor == 0) return dropped;
  int64_t begin = 0;
  for (const int64_t end : SampleEnds(tokens)) {
    const double capacity =
        std::ceil(model.expert_capacity_factor * static_cast<double>(end - begin) *
                  static_cast<double>(model.experts_per_token) / static_cast<double>(model.experts));
    std::vector<double> taken(static_cast<size_t>(model.experts));
    for (size_t choice = 0; choice < per_token; ++choice) {
      for (int64_t token = begin; token < end; ++token) {
        const at::Tensor order = scores[token].detach().argsort(-1, /*descending=*/true);
        double& rows = taken[static_cast<size_t>(order[static_cast<int64_t>(choice)].item<int64_t>())];
        dropped[static_cast<size_t>(token)][choice] = rows >= capacity;
        rows += 1;
      }
    }
    begin = end;
  }
  return dropped;
}

at::Tensor SharedExpert(const at::Tensor& x, const ReferenceParameters& p, const std::string& layer,
                        const ReferenceModel& model) {
  const at::Tensor share = 1 / (1 + (-Linear(x, p, layer + ".ffn.shared_gate")).exp());
  return share * FeedForward(x, p, layer + ".ffn.shared", model);
}

// One token after the other: the sum over its most probable experts that have room for it.
at::Tensor Experts(const at::Tensor& x, const ReferenceParameters& p, const std::string& layer,
                   const ReferenceModel& model, const at::Tensor& scores, const RowTokens& tokens) {
  const std::vector<std::vector<bool>> dropped = Dropped(scores, tokens, model);
  std::vector<at::Tensor> rows;
  for (int64_t token = 0; token < x.size(0); ++token) {
    const at::Tensor order = scores[token].detach().argsort(-1, /*descending=*/true);
    const at::Tensor row = x.narrow(0, token, 1);
    at::Tensor sum = at::zeros_like(row);
    at::Tensor weights = at::zeros({}, row.options());
    for (int64_t i = 0; i < model.experts_per_token; ++i) {
      const auto expert = order[i].item<int64_t>();
      const at::Tensor weight = scores[token][expert].exp();
      weights = weights + weight;
      if (dropped[static_cast<size_t>(token)][static_cast<size_t>(i)]) continue;
      const std::string name = layer + ".ffn.experts." + std::to_string(expert);
      sum = sum + weight * FeedForward(row, p, name, model);
    }
    rows.push_back(sum / (model.normalised_experts ? weights : scores[token].exp().sum()));
  }
  const at::Tensor sum = at::cat(rows);
  return model.shared_expert_ffn > 0 ? sum + SharedExpert(x, p, layer, model) : sum;
}

// Over all heads of queries, and of keys.
at::Tensor NormedAndClipped(at::Tensor qkv, const ReferenceParameters& p, const std::string& layer,
                            const ReferenceModel& model) {
  const int64_t width = qkv.size(1) / (model.heads + 2 * model.key_value_heads);
  const int64_t queries = model.heads * width;
  const int64_t keys = model.key_value_heads * width;
  if (model.joint_head_norms) {
    qkv = at::cat({RmsNorm(qkv.narrow(1, 0, queries), p, layer + ".attention.query_norm"),
                   RmsNorm(qkv.narrow(1, queries, keys), p, layer + ".attention.key_norm"),
                   qkv.narrow(1, queries + keys, keys)},
                  1);
  }
  const double clip = model.query_key_value_clip;
  return clip > 0 ? qkv.clamp(-clip, clip) : qkv;
}

// x: [length, hidden]. One head after the other; every token sees those before it in the row. Neighbouring
// query heads share a key head and a value head.
at::Tensor Attend(const at::Tensor& x, const std::vector<int64_t>& positions, const ReferenceParameters& p,
                  const std::string& layer, const ReferenceModel& model) {
  const int64_t length = x.size(0);
  const at::Tensor qkv = NormedAndClipped(Linear(x, p, layer + ".attention.qkv"), p, layer, model);
  const int64_t width = qkv.size(1) / (model.heads + 2 * model.key_value_heads);
  const at::Tensor future = at::ones({length, length}, at::kBool).triu(1);
  const auto head_at = [&](int64_t index) { return qkv.narrow(1, index * width, width); };
  std::vector<at::Tensor> heads;
  for (int64_t head = 0; head < model.heads; ++head) {
    const int64_t shared = head / (model.heads / model.key_value_heads);
    const at::Tensor query =
        Turn(NormedHead(head_at(head), p, layer + ".attention.query_norm", model), positions, model);
    const at::Tensor key = Turn(
        NormedHead(head_at(model.heads + shared), p, layer + ".attention.key_norm", model), positions, model);
    const at::Tensor value = head_at(model.heads + model.key_value_heads + shared);
    const at::Tensor scores = query.matmul(key.t()) / std::sqrt(static_cast<double>(width));
    heads.push_back(scores.masked_fill(future, -INFINITY).softmax(-1).matmul(value));
  }
  return Linear(at::cat(heads, 1), p, layer + ".attention.output");
}

// [length, vocab]. Adds losses of routers.
at::Tensor Logits(const RowTokens& tokens, const ReferenceParameters& p, const ReferenceModel& model,
                  at::Tensor& router_losses) {
  at::Tensor x = p.at("embedding.token.weight").index_select(0, at::tensor(tokens.ids, at::kLong));
  if (model.rotary_theta == 0) {
    x = x + p.at("embedding.position.weight").index_select(0, at::tensor(tokens.positions, at::kLong));
  }
  for (int64_t i = 0; i < model.layers; ++i) {
    const std::string layer = "layers." + std::to_string(i);
    x = x + Attend(Norm(x, p, layer + ".attention_norm", model), tokens.positions, p, layer, model);
    const at::Tensor normalised = Norm(x, p, layer + ".ffn_norm", model);
    if (model.experts == 0 || std::ranges::count(model.dense_layers, i + 1) > 0) {
      x = x + FeedForward(normalised, p, layer + ".ffn", model);
      continue;
    }
    const at::Tensor scores = Linear(normalised, p, layer + ".ffn.router");
    AddRouterLosses(scores, tokens, model, router_losses);
    x = x + Experts(normalised, p, layer, model, scores, tokens);
  }
  return Linear(Norm(x, p, "final_norm", model), p, model.tied_head ? "embedding.token" : "head");
}

}  // namespace

double GptLossWeight(const ReferenceSample& sample) {
  double weight = 0;
  // The first token of a sample has none before it.
  for (size_t i = sample.input.empty() ? 1 : 0; i < sample.target.size(); ++i) weight += WeightOf(sample, i);
  return weight;
}

GptLosses GptRowLosses(const ReferenceRow& row, const ReferenceParameters& p, const ReferenceModel& model) {
  RowTokens tokens;
  std::vector<LossPosition> positions;
  for (const ReferenceSample& sample : row) {
    std::vector<int32_t> all = sample.input;
    all.insert(all.end(), sample.target.begin(), sample.target.end());
    const auto begin = static_cast<int64_t>(tokens.ids.size());
    const int64_t first = sample.input.empty() ? 1 : static_cast<int64_t>(sample.input.size());
    for (auto i = first; i < static_cast<int64_t>(all.size()); ++i) {
      positions.push_back({.position = begin + i - 1,
                           .label = all[static_cast<size_t>(i)],
                           .weight = WeightOf(sample, static_cast<size_t>(i) - sample.input.size())});
    }
    tokens.Append(all);
  }
  GptLosses losses;
  if (tokens.ids.empty()) return losses;
  const at::Tensor logits = Logits(tokens, p, model, losses.of_routers);
  if (!positions.empty()) losses.cross_entropy = CrossEntropy(logits, positions);
  return losses;
}

}  // namespace penstock::testing
