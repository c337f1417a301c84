// T5 (Raffel et al. 2020), in the reading of Hugging Face's T5ForConditionalGeneration without dropout: RMS
// norms before each part, no biases, unscaled attention, a relative position bias for each stack, ReLU, GELU
// or gated GELU, a head of its own whose input is not scaled, or the embedding as head.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "tests/system/equivalence/reference_model.h"

namespace penstock::testing {
namespace {

// Which row of the table a key has whose position is `distance` after that of the query. Half of the rows (of
// those of a side, where both sides have their own) are for one distance each, the others grow in width by a
// constant factor up to the greatest distance; all that are farther share the last.
int64_t Bucket(int64_t distance, bool both_sides, const ReferenceModel& model) {
  int64_t rows = model.relative_position_buckets;
  int64_t first = 0;
  if (both_sides) {
    rows /= 2;
    if (distance > 0) first = rows;
    distance = std::abs(distance);
  } else {
    distance = std::max<int64_t>(-distance, 0);
  }
  const int64_t exact = rows / 2;
  if (distance < exact) return first + distance;
  const double most = static_cast<double>(model.relative_position_max_distance);
  const double near = static_cast<double>(exact);
  const double share = std::log(static_cast<double>(distance) / near) / std::log(most / near);
  // What is a whole number must not become less by rounding.
  const auto beyond = static_cast<int64_t>(share * static_cast<double>(rows - exact) + 1e-9);
  return first + std::min(exact + beyond, rows - 1);
}

// The table's rows for each query and key of a row: [length, length, heads].
at::Tensor PositionBias(const std::vector<int64_t>& positions, const at::Tensor& table, bool both_sides,
                        const ReferenceModel& model) {
  const auto length = static_cast<int64_t>(positions.size());
  std::vector<int64_t> buckets;
  for (const int64_t query : positions) {
    for (const int64_t key : positions) buckets.push_back(Bucket(key - query, both_sides, model));
  }
  return table.index_select(0, at::tensor(buckets, at::kLong)).view({length, length, model.heads});
}

// Scores to add and keys to hide; either may be undefined.
struct Mask {
  at::Tensor bias = {};
  at::Tensor hidden = {};
};

// query [n, inner], key and value [m, inner]: [n, inner]. Zeros where there is no key.
at::Tensor Attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const Mask& mask,
                  const ReferenceModel& model) {
  if (key.size(0) == 0) return at::zeros_like(query);
  const int64_t width = query.size(1) / model.heads;
  std::vector<at::Tensor> heads;
  for (int64_t head = 0; head < model.heads; ++head) {
    const auto part = [&](const at::Tensor& x) { return x.narrow(1, head * width, width); };
    at::Tensor scores = part(query).matmul(part(key).t());
    if (mask.bias.defined()) scores = scores + mask.bias.select(2, head);
    if (mask.hidden.defined()) scores = scores.masked_fill(mask.hidden, -INFINITY);
    heads.push_back(scores.softmax(-1).matmul(part(value)));
  }
  return at::cat(heads, 1);
}

at::Tensor SelfAttention(const at::Tensor& x, const ReferenceParameters& p, const std::string& layer,
                         const Mask& mask, const ReferenceModel& model) {
  const at::Tensor qkv = Linear(RmsNorm(x, p, layer + ".attention_norm"), p, layer + ".attention.qkv");
  const std::vector<at::Tensor> parts = qkv.chunk(3, 1);
  return Linear(Attend(parts[0], parts[1], parts[2], mask, model), p, layer + ".attention.output");
}

at::Tensor CrossAttention(const at::Tensor& x, const at::Tensor& encoded, const ReferenceParameters& p,
                          const std::string& layer, const ReferenceModel& model) {
  const at::Tensor query = Linear(RmsNorm(x, p, layer + ".cross_norm"), p, layer + ".cross.query");
  const std::vector<at::Tensor> parts = Linear(encoded, p, layer + ".cross.key_value").chunk(2, 1);
  return Linear(Attend(query, parts[0], parts[1], {}, model), p, layer + ".cross.output");
}

at::Tensor Embed(const RowTokens& tokens, const at::Tensor& table) {
  return table.index_select(0, at::tensor(tokens.ids, at::kLong));
}

// [source tokens, hidden]
at::Tensor Encode(const RowTokens& source, const ReferenceParameters& p, const ReferenceModel& model) {
  at::Tensor x = Embed(source, p.at("embedding.token.weight"));
  const Mask mask = {.bias = PositionBias(source.positions, p.at("encoder.relative_bias.weight"),
                                          /*both_sides=*/true, model)};
  for (int64_t i = 0; i < model.encoder_layers; ++i) {
    const std::string layer = "encoder." + std::to_string(i);
    x = x + SelfAttention(x, p, layer, mask, model);
    x = x + FeedForward(RmsNorm(x, p, layer + ".ffn_norm"), p, layer + ".ffn", model);
  }
  return RmsNorm(x, p, "encoder.final_norm");
}

// [target tokens, vocab]. Every token sees those before it in the row, and the whole source.
at::Tensor Decode(const RowTokens& target, const at::Tensor& encoded, const ReferenceParameters& p,
                  const ReferenceModel& model) {
  const std::string table = model.tied_embeddings ? "embedding.token" : "decoder.embedding.token";
  at::Tensor x = Embed(target, p.at(table + ".weight"));
  const int64_t length = x.size(0);
  const Mask mask = {.bias = PositionBias(target.positions, p.at("decoder.relative_bias.weight"),
                                          /*both_sides=*/false, model),
                     .hidden = at::ones({length, length}, at::kBool).triu(1)};
  for (int64_t i = 0; i < model.decoder_layers; ++i) {
    const std::string layer = "decoder." + std::to_string(i);
    x = x + SelfAttention(x, p, layer, mask, model);
    x = x + CrossAttention(x, encoded, p, layer, model);
    x = x + FeedForward(RmsNorm(x, p, layer + ".ffn_norm"), p, layer + ".ffn", model);
  }
  x = RmsNorm(x, p, "final_norm");
  // T5 1.0: the embedding is the head too, and what it reads is scaled.
  return model.tied_head ? Linear(x / std::sqrt(static_cast<double>(x.size(1))), p, table)
                         : Linear(x, p, "head");
}

}  // namespace

double T5LossWeight(const ReferenceSample& sample) {
  double weight = 0;
  for (size_t i = 0; i < sample.target.size(); ++i) weight += WeightOf(sample, i);
  return weight;
}

at::Tensor T5RowLoss(const ReferenceRow& row, const ReferenceParameters& p, const ReferenceModel& model) {
  RowTokens source;
  RowTokens target;
  std::vector<LossPosition> positions;
  for (const ReferenceSample& sample : row) {
    source.Append(sample.input);
    if (sample.target.empty()) continue;
    // What the decoder sees is one token behind what it shall say.
    std::vector<int32_t> shifted = {static_cast<int32_t>(model.decoder_start_token)};
    shifted.insert(shifted.end(), sample.target.begin(), sample.target.end() - 1);
    for (size_t i = 0; i < sample.target.size(); ++i) {
      positions.push_back({.position = static_cast<int64_t>(positions.size()),
                           .label = sample.target[i],
                           .weight = WeightOf(sample, i)});
    }
    target.Append(shifted);
  }
  if (positions.empty()) return {};
  return CrossEntropy(Decode(target, Encode(source, p, model), p, model), positions);
}

}  // namespace penstock::testing
