#include "tests/unit/worker/plain_model.h"

#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>

namespace penstock::worker {
namespace {

at::Tensor LayerNorm(const PlainParameters& p, const std::string& name, const at::Tensor& x) {
  const at::Tensor centred = x - x.mean(-1, true);
  return centred / (centred.square().mean(-1, true) + 1e-5).sqrt() * p.at(name + ".weight") +
         p.at(name + ".bias");
}

at::Tensor RmsNorm(const PlainParameters& p, const std::string& name, const at::Tensor& x) {
  return x / (x.square().mean(-1, true) + 1e-6).sqrt() * p.at(name + ".weight");
}

at::Tensor Linear(const PlainParameters& p, const std::string& name, const at::Tensor& x) {
  const at::Tensor product = x.matmul(p.at(name + ".weight").t());
  return p.contains(name + ".bias") ? product + p.at(name + ".bias") : product;
}

at::Tensor Gelu(const at::Tensor& x) {
  return 0.5 * x * (1 + (std::sqrt(2 / M_PI) * (x + 0.044715 * x.pow(3))).tanh());
}

int64_t Width(const ModelConfig& config) {
  return (config.attention_inner == 0 ? config.hidden : config.attention_inner) / config.heads;
}

// `add` is added to the scores of each head, [heads, queries, keys].
at::Tensor Attend(const ModelConfig& config, const at::Tensor& query, const at::Tensor& key,
                  const at::Tensor& value, double scale, const at::Tensor& add) {
  const int64_t width = Width(config);
  std::vector<at::Tensor> outputs;
  for (int64_t head = 0; head < config.heads; ++head) {
    const auto part = [&](const at::Tensor& x) { return x.slice(1, head * width, (head + 1) * width); };
    const at::Tensor scores = part(query).matmul(part(key).t()) * scale + add[head];
    outputs.push_back(scores.softmax(-1).matmul(part(value)));
  }
  return at::cat(outputs, 1);
}

at::Tensor CausalMask(int64_t heads, int64_t length) {
  const at::Tensor future = at::ones({length, length}, at::kBool).triu(1);
  return at::zeros({heads, length, length}, at::kDouble)
      .masked_fill(future, -std::numeric_limits<double>::infinity());
}

std::vector<at::Tensor> Thirds(const at::Tensor& x) { return x.chunk(3, 1); }

at::Tensor Ids(const std::vector<int64_t>& ids) { return at::tensor(ids, at::kLong); }

// As Raffel et al. describe them: half of the buckets for one distance each, half growing logarithmically.
int64_t Bucket(const ModelConfig& config, int64_t distance, bool encoder) {
  int64_t buckets = config.relative_position_buckets;
  int64_t result = 0;
  int64_t far = 0;
  if (encoder) {
    buckets /= 2;
    result = distance > 0 ? buckets : 0;
    far = std::abs(distance);
  } else {
    far = distance < 0 ? -distance : 0;
  }
  if (far < buckets / 2) return result + far;
  const double share = std::log(far / (buckets / 2.0)) /
                       std::log(static_cast<double>(config.relative_position_max_distance) / (buckets / 2.0));
  return result + std::min<int64_t>(buckets / 2 + static_cast<int64_t>(share * (buckets / 2.0)), buckets - 1);
}

at::Tensor RelativeBias(const PlainParameters& p, const ModelConfig& config, const std::string& stack,
                        const std::vector<int64_t>& positions) {
  std::vector<int64_t> buckets;
  for (const int64_t query : positions) {
    for (const int64_t key : positions) buckets.push_back(Bucket(config, key - query, stack == "encoder"));
  }
  const auto length = static_cast<int64_t>(positions.size());
  return p.at(stack + ".relative_bias.weight").index_select(0, Ids(buckets)).t().view({-1, length, length});
}

at::Tensor T5FeedForward(const PlainParameters& p, const ModelConfig& config, const std::string& name,
                         const at::Tensor& x) {
  const at::Tensor up = Linear(p, name + ".up", x);
  switch (config.feed_forward) {
    case FeedForward::kRelu:
      return Linear(p, name + ".down", up.relu());
    case FeedForward::kGelu:
      return Linear(p, name + ".down", Gelu(up));
    case FeedForward::kGatedGelu:
      return Linear(p, name + ".down", Gelu(Linear(p, name + ".gate", x)) * up);
  }
  return {};
}

at::Tensor T5SelfAttention(const PlainParameters& p, const ModelConfig& config, const std::string& layer,
                           const at::Tensor& x, const at::Tensor& add) {
  const auto parts = Thirds(Linear(p, layer + ".attention.qkv", RmsNorm(p, layer + ".attention_norm", x)));
  return x + Linear(p, layer + ".attention.output", Attend(config, parts[0], parts[1], parts[2], 1, add));
}

at::Tensor Encode(const PlainParameters& p, const ModelConfig& config, const std::vector<int64_t>& ids,
                  const std::vector<int64_t>& positions) {
  at::Tensor x = p.at("embedding.token.weight").index_select(0, Ids(ids));
  const at::Tensor bias = RelativeBias(p, config, "encoder", positions);
  for (int64_t i = 0; i < config.encoder_layers; ++i) {
    const std::string layer = "encoder." + std::to_string(i);
    x = T5SelfAttention(p, config, layer, x, bias);
    x = x + T5FeedForward(p, config, layer + ".ffn", RmsNorm(p, layer + ".ffn_norm", x));
  }
  return RmsNorm(p, "encoder.final_norm", x);
}

// `source` is undefined where the row has no input: attention of nothing is 0.
at::Tensor CrossAttention(const PlainParameters& p, const ModelConfig& config, const std::string& layer,
                          const at::Tensor& x, const at::Tensor& source) {
  if (!source.defined()) return x;
  const at::Tensor query = Linear(p, layer + ".cross.query", RmsNorm(p, layer + ".cross_norm", x));
  const auto parts = Linear(p, layer + ".cross.key_value", source).chunk(2, 1);
  const at::Tensor none = at::zeros({config.heads, x.size(0), source.size(0)}, at::kDouble);
  return x + Linear(p, layer + ".cross.output", Attend(config, query, parts[0], parts[1], 1, none));
}

at::Tensor Decode(const PlainParameters& p, const ModelConfig& config, const std::vector<int64_t>& ids,
                  const std::vector<int64_t>& positions, const at::Tensor& source) {
  at::Tensor x = p.at("decoder.embedding.token.weight").index_select(0, Ids(ids));
  const at::Tensor add = RelativeBias(p, config, "decoder", positions) + CausalMask(config.heads, x.size(0));
  for (int64_t i = 0; i < config.layers - config.encoder_layers; ++i) {
    const std::string layer = "decoder." + std::to_string(i);
    x = T5SelfAttention(p, config, layer, x, add);
    x = CrossAttention(p, config, layer, x, source);
    x = x + T5FeedForward(p, config, layer + ".ffn", RmsNorm(p, layer + ".ffn_norm", x));
  }
  return RmsNorm(p, "final_norm", x);
}

// Cross entropy of `labels` where they are not negative.
at::Tensor CrossEntropy(const PlainParameters& p, const at::Tensor& hidden,
                        const std::vector<int64_t>& labels) {
  const at::Tensor log_probabilities = hidden.matmul(p.at("head.weight").t()).log_softmax(-1);
  at::Tensor loss = at::zeros({}, at::kDouble);
  for (size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] >= 0) loss = loss - log_probabilities[static_cast<int64_t>(i)][labels[i]];
  }
  return loss;
}

}  // namespace

at::Tensor PlainGptLoss(const PlainParameters& p, const ModelConfig& config, const PlainRow& row) {
  std::vector<int64_t> ids;
  std::vector<int64_t> positions;
  std::vector<int64_t> labels;
  for (size_t s = 0; s < row.samples.size(); ++s) {
    const std::vector<int32_t>& tokens = row.samples[s];
    for (size_t i = 0; i < tokens.size(); ++i) {
      ids.push_back(tokens[i]);
      positions.push_back(static_cast<int64_t>(i));
      labels.push_back(i + 1 < tokens.size() && i + 1 >= row.inputs[s] ? tokens[i + 1] : -1);
    }
  }
  at::Tensor x = p.at("embedding.token.weight").index_select(0, Ids(ids)) +
                 p.at("embedding.position.weight").index_select(0, Ids(positions));
  const double scale = 1 / std::sqrt(static_cast<double>(Width(config)));
  for (int64_t i = 0; i < config.layers; ++i) {
    const std::string layer = "layers." + std::to_string(i);
    const auto parts =
        Thirds(Linear(p, layer + ".attention.qkv", LayerNorm(p, layer + ".attention_norm", x)));
    x = x + Linear(p, layer + ".attention.output",
                   Attend(config, parts[0], parts[1], parts[2], scale, CausalMask(config.heads, x.size(0))));
    x = x + Linear(p, layer + ".ffn.down",
                   Gelu(Linear(p, layer + ".ffn.up", LayerNorm(p, layer + ".ffn_norm", x))));
  }
  return CrossEntropy(p, LayerNorm(p, "final_norm", x), labels);
}

at::Tensor PlainT5Loss(const PlainParameters& p, const ModelConfig& config, const PlainRow& row) {
  std::vector<int64_t> source;
  std::vector<int64_t> source_positions;
  std::vector<int64_t> target;
  std::vector<int64_t> target_positions;
  std::vector<int64_t> labels;
  for (size_t s = 0; s < row.samples.size(); ++s) {
    const std::vector<int32_t>& tokens = row.samples[s];
    for (size_t i = 0; i < tokens.size(); ++i) {
      const bool input = i < row.inputs[s];
      if (input) {
        source.push_back(tokens[i]);
        source_positions.push_back(static_cast<int64_t>(i));
        continue;
      }
      target.push_back(i == row.inputs[s] ? config.decoder_start_token : tokens[i - 1]);
      target_positions.push_back(static_cast<int64_t>(i - row.inputs[s]));
      labels.push_back(tokens[i]);
    }
  }
  if (target.empty()) return at::zeros({}, at::kDouble);
  const at::Tensor encoded = source.empty() ? at::Tensor() : Encode(p, config, source, source_positions);
  return CrossEntropy(p, Decode(p, config, target, target_positions, encoded), labels);
}

}  // namespace penstock::worker
