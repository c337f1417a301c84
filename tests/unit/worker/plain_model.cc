#include "tests/unit/worker/plain_model.h"

#include <algorithm>
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

// GPT's RMS norm, whose weight may be what is added to 1.
at::Tensor GptRmsNorm(const PlainParameters& p, const ModelConfig& config, const std::string& name,
                      const at::Tensor& x) {
  const at::Tensor normalised = x / (x.square().mean(-1, true) + 1e-6).sqrt();
  return normalised * p.at(name + ".weight") + (config.offset_norms ? normalised : at::zeros_like(x));
}

// GPT's norm.
at::Tensor Normalise(const PlainParameters& p, const ModelConfig& config, const std::string& name,
                     const at::Tensor& x) {
  return config.norm == Norm::kRms ? GptRmsNorm(p, config, name, x) : LayerNorm(p, name, x);
}

// The same where layers have such a norm.
at::Tensor NormaliseIf(const PlainParameters& p, const ModelConfig& config, const std::string& name,
                       const at::Tensor& x) {
  return p.contains(name + ".weight") ? Normalise(p, config, name, x) : x;
}

at::Tensor Capped(double cap, const at::Tensor& x) { return cap > 0 ? (x / cap).tanh() * cap : x; }

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
    const int64_t shared = head * key.size(1) / query.size(1);
    const auto part = [&](const at::Tensor& x, int64_t which) {
      return x.slice(1, which * width, (which + 1) * width);
    };
    const at::Tensor scores =
        Capped(config.score_cap, part(query, head).matmul(part(key, shared).t()) * scale) + add[head];
    outputs.push_back(scores.softmax(-1).matmul(part(value, shared)));
  }
  return at::cat(outputs, 1);
}

// `window`: tokens that one sees, itself among them; 0: all before it.
at::Tensor CausalMask(int64_t heads, int64_t length, int64_t window = 0) {
  at::Tensor future = at::ones({length, length}, at::kBool).triu(1);
  if (window > 0) future = future.logical_or(at::ones({length, length}, at::kBool).tril(-window));
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

at::Tensor FeedForwardOf(const PlainParameters& p, const ModelConfig& config, const std::string& name,
                         const at::Tensor& x) {
  const at::Tensor up = Linear(p, name + ".up", x);
  switch (config.feed_forward) {
    case FeedForward::kRelu:
      return Linear(p, name + ".down", up.relu());
    case FeedForward::kGelu:
      return Linear(p, name + ".down", Gelu(up));
    case FeedForward::kGatedGelu:
      return Linear(p, name + ".down", Gelu(Linear(p, name + ".gate", x)) * up);
    case FeedForward::kGatedSilu: {
      const at::Tensor gate = Linear(p, name + ".gate", x);
      return Linear(p, name + ".down", gate / (1 + (-gate).exp()) * up);
    }
  }
  return {};
}

// Of one layer and the tokens of a row: sample by sample, as the formulas have it.
void AddRouterLosses(const ModelConfig& config, const PlainRow& row, const at::Tensor& scores,
                     const at::Tensor& goes, PlainRouterLosses& losses) {
  int64_t begin = 0;
  for (const std::vector<int32_t>& sample : row.samples) {
    const auto tokens = static_cast<int64_t>(sample.size());
    const at::Tensor own = scores.slice(0, begin, begin + tokens);
    const at::Tensor shares = goes.slice(0, begin, begin + tokens).to(at::kDouble).sum(0) /
                              static_cast<double>(tokens * config.experts_per_token);
    const at::Tensor means = own.softmax(-1).mean(0);
    losses.balance = losses.balance + config.router_balance_loss * static_cast<double>(tokens) *
                                          static_cast<double>(config.experts) * (shares * means).sum();
    losses.z = losses.z + config.router_z_loss * own.exp().sum(-1).log().square().sum();
    begin += tokens;
  }
}

// [tokens, experts]: those that tokens go to, without rows that an expert has no room for: sample by sample,
// all first choices before all second ones.
at::Tensor Taken(const ModelConfig& config, const PlainRow& row, const at::Tensor& probabilities,
                 const at::Tensor& goes) {
  if (config.expert_capacity_factor == 0) return goes;
  at::Tensor taken = goes.clone();
  int64_t begin = 0;
  for (const std::vector<int32_t>& sample : row.samples) {
    const auto end = begin + static_cast<int64_t>(sample.size());
    const double room =
        std::ceil(config.expert_capacity_factor * static_cast<double>(sample.size()) *
                  static_cast<double>(config.experts_per_token) / static_cast<double>(config.experts));
    for (int64_t expert = 0; expert < config.experts; ++expert) {
      double rows = 0;
      for (int64_t choice = 0; choice < config.experts_per_token; ++choice) {
        for (int64_t token = begin; token < end; ++token) {
          const at::Tensor of_token = probabilities[token];
          if (of_token.gt(of_token[expert]).sum().item<int64_t>() != choice) continue;
          if (rows++ >= room) taken[token][expert] = false;
        }
      }
    }
    begin = end;
  }
  return taken;
}

at::Tensor SharedExpertOf(const PlainParameters& p, const ModelConfig& config, const std::string& name,
                          const at::Tensor& x) {
  const at::Tensor result = FeedForwardOf(p, config, name + ".shared", x);
  return config.gated_shared_expert ? result / (1 + (-Linear(p, name + ".shared_gate", x)).exp()) : result;
}

// Every expert for every token, and 0 for those that the token does not go to.
at::Tensor ExpertsOf(const PlainParameters& p, const ModelConfig& config, const std::string& name,
                     const PlainRow& row, const at::Tensor& x, PlainRouterLosses& losses) {
  const at::Tensor scores = Linear(p, name + ".router", x);
  const at::Tensor probabilities = scores.softmax(-1);
  const at::Tensor least = std::get<0>(probabilities.topk(config.experts_per_token, -1)).slice(1, -1);
  const at::Tensor goes = probabilities.ge(least);
  AddRouterLosses(config, row, scores, goes, losses);
  at::Tensor weights = probabilities * goes;
  if (config.normalised_experts) weights = weights / weights.sum(-1, true);
  weights = weights * Taken(config, row, probabilities, goes);
  at::Tensor sum = at::zeros_like(x);
  for (int64_t i = 0; i < config.experts; ++i) {
    sum = sum +
          weights.slice(1, i, i + 1) * FeedForwardOf(p, config, name + ".experts." + std::to_string(i), x);
  }
  if (config.shared_expert_ffn > 0) sum = sum + SharedExpertOf(p, config, name, x);
  return sum;
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
    x = x + FeedForwardOf(p, config, layer + ".ffn", RmsNorm(p, layer + ".ffn_norm", x));
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

std::string DecoderTable(const ModelConfig& config) {
  return config.tied_embeddings ? "embedding.token.weight" : "decoder.embedding.token.weight";
}

at::Tensor Decode(const PlainParameters& p, const ModelConfig& config, const std::vector<int64_t>& ids,
                  const std::vector<int64_t>& positions, const at::Tensor& source) {
  at::Tensor x = p.at(DecoderTable(config)).index_select(0, Ids(ids));
  const at::Tensor add = RelativeBias(p, config, "decoder", positions) + CausalMask(config.heads, x.size(0));
  for (int64_t i = 0; i < config.layers - config.encoder_layers; ++i) {
    const std::string layer = "decoder." + std::to_string(i);
    x = T5SelfAttention(p, config, layer, x, add);
    x = CrossAttention(p, config, layer, x, source);
    x = x + FeedForwardOf(p, config, layer + ".ffn", RmsNorm(p, layer + ".ffn_norm", x));
  }
  return RmsNorm(p, "final_norm", x);
}

// Cross entropy of `labels` where they are not negative.
at::Tensor CrossEntropy(const PlainParameters& p, const std::string& head, const at::Tensor& hidden,
                        const std::vector<int64_t>& labels, double logit_cap = 0) {
  const at::Tensor log_probabilities = Capped(logit_cap, hidden.matmul(p.at(head).t())).log_softmax(-1);
  at::Tensor loss = at::zeros({}, at::kDouble);
  for (size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] >= 0) loss = loss - log_probabilities[static_cast<int64_t>(i)][labels[i]];
  }
  return loss;
}

// Where a token stands, and how long its sample is.
struct Place {
  int64_t position = 0;
  int64_t tokens = 0;
};

bool HasWindow(const ModelConfig& config, int64_t layer) {
  for (const int64_t windowless : config.windowless_layers) {
    if (windowless == layer) return false;
  }
  return config.attention_window > 0 &&
         (config.windowless_interval == 0 || (layer + 1) % config.windowless_interval != 0);
}

int64_t TurningElements(const ModelConfig& config) {
  return config.rotary.width > 0 ? config.rotary.width : Width(config);
}

// Angle of one position of pair `pair` of a head, as the scaling wants it.
double Angle(const ModelConfig& config, int64_t pair, int64_t tokens, bool windowed) {
  const RotaryConfig& rotary = config.rotary;
  const double power = -2.0 * static_cast<double>(pair) / static_cast<double>(TurningElements(config));
  if (windowed && config.window_rotary_theta > 0) return std::pow(config.window_rotary_theta, power);
  const double angle = std::pow(rotary.theta, power);
  const auto original = static_cast<double>(rotary.original_max_sequence_length);
  if (rotary.scaling == RotaryScaling::kNone) return angle;
  if (rotary.scaling == RotaryScaling::kLinear) return angle / rotary.factor;
  if (rotary.scaling == RotaryScaling::kLongRope) {
    const bool is_long = tokens > rotary.original_max_sequence_length;
    return angle / (is_long ? rotary.long_factors : rotary.short_factors).at(static_cast<size_t>(pair));
  }
  const double wavelength = 2 * M_PI / angle;
  if (wavelength > original / rotary.low_frequency_factor) return angle / rotary.factor;
  if (wavelength < original / rotary.high_frequency_factor) return angle;
  const double smooth = (original / wavelength - rotary.low_frequency_factor) /
                        (rotary.high_frequency_factor - rotary.low_frequency_factor);
  return (1 - smooth) * angle / rotary.factor + smooth * angle;
}

// As products of complex numbers: of the elements that turn, i is the real part, i + half of them the
// imaginary one.
at::Tensor Rotated(const ModelConfig& config, const at::Tensor& x, const std::vector<Place>& places,
                   bool windowed) {
  const int64_t width = Width(config);
  const int64_t half = TurningElements(config) / 2;
  std::vector<at::Tensor> rows;
  for (size_t row = 0; row < places.size(); ++row) {
    std::vector<at::Tensor> heads;
    for (int64_t first = 0; first < x.size(1); first += width) {
      const at::Tensor head = x[static_cast<int64_t>(row)].slice(0, first, first + width);
      std::vector<double> angles;
      for (int64_t i = 0; i < half; ++i)
        angles.push_back(Angle(config, i, places[row].tokens, windowed) *
                         static_cast<double>(places[row].position));
      const at::Tensor angle = at::tensor(angles, at::kDouble);
      const double factor = windowed && config.window_rotary_theta > 0 ? 1 : config.rotary.attention_factor;
      const at::Tensor turned = at::complex(head.slice(0, 0, half), head.slice(0, half, 2 * half)) *
                                at::complex(angle.cos(), angle.sin()) * factor;
      heads.push_back(at::cat({at::real(turned), at::imag(turned), head.slice(0, 2 * half, width)}));
    }
    rows.push_back(at::cat(heads));
  }
  return at::stack(rows);
}

at::Tensor HeadsNormed(const PlainParameters& p, const ModelConfig& config, const std::string& name,
                       const at::Tensor& x) {
  return GptRmsNorm(p, config, name, x.reshape({x.size(0), -1, Width(config)})).reshape(x.sizes());
}

at::Tensor GptAttention(const PlainParameters& p, const ModelConfig& config, const std::string& layer,
                        const at::Tensor& x, const std::vector<Place>& places, bool windowed) {
  const double scale = config.multipliers.attention > 0 ? config.multipliers.attention
                                                        : 1 / std::sqrt(static_cast<double>(Width(config)));
  const at::Tensor qkv =
      Linear(p, layer + ".attention.qkv", NormaliseIf(p, config, layer + ".attention_norm", x));
  const int64_t query = Width(config) * config.heads;
  const int64_t key = (qkv.size(1) - query) / 2;
  auto parts = qkv.split_with_sizes({query, key, key}, 1);
  if (config.head_norms) {
    parts[0] = HeadsNormed(p, config, layer + ".attention.query_norm", parts[0]);
    parts[1] = HeadsNormed(p, config, layer + ".attention.key_norm", parts[1]);
  }
  if (config.joint_head_norms) {
    parts[0] = GptRmsNorm(p, config, layer + ".attention.query_norm", parts[0]);
    parts[1] = GptRmsNorm(p, config, layer + ".attention.key_norm", parts[1]);
  }
  if (config.query_key_value_clip > 0) {
    for (at::Tensor& part : parts)
      part = part.clamp(-config.query_key_value_clip, config.query_key_value_clip);
  }
  if (config.position == Position::kRotary) {
    parts[0] = Rotated(config, parts[0], places, windowed);
    parts[1] = Rotated(config, parts[1], places, windowed);
  }
  const at::Tensor mask = CausalMask(config.heads, x.size(0), windowed ? config.attention_window : 0);
  return Linear(p, layer + ".attention.output", Attend(config, parts[0], parts[1], parts[2], scale, mask));
}

}  // namespace

at::Tensor PlainGptLoss(const PlainParameters& p, const ModelConfig& config, const PlainRow& row,
                        PlainRouterLosses& router_losses) {
  std::vector<int64_t> ids;
  std::vector<int64_t> positions;
  std::vector<Place> places;
  std::vector<int64_t> labels;
  for (size_t s = 0; s < row.samples.size(); ++s) {
    const std::vector<int32_t>& tokens = row.samples[s];
    for (size_t i = 0; i < tokens.size(); ++i) {
      ids.push_back(tokens[i]);
      places.push_back({static_cast<int64_t>(i), static_cast<int64_t>(tokens.size())});
      positions.push_back(static_cast<int64_t>(i));
      labels.push_back(i + 1 < tokens.size() && i + 1 >= row.inputs[s] ? tokens[i + 1] : -1);
    }
  }
  at::Tensor x = p.at("embedding.token.weight").index_select(0, Ids(ids)) * config.multipliers.embedding;
  if (config.position != Position::kRotary) {
    x = x + p.at("embedding.position.weight").index_select(0, Ids(positions));
  }
  for (int64_t i = 0; i < config.layers; ++i) {
    const std::string layer = "layers." + std::to_string(i);
    x = x + NormaliseIf(p, config, layer + ".attention_output_norm",
                        GptAttention(p, config, layer, x, places, HasWindow(config, i)));
    const at::Tensor normalised = NormaliseIf(p, config, layer + ".ffn_norm", x);
    x = x + NormaliseIf(p, config, layer + ".ffn_output_norm",
                        config.experts > 0 && std::ranges::count(config.dense_layers, i) == 0
                            ? ExpertsOf(p, config, layer + ".ffn", row, normalised, router_losses)
                            : FeedForwardOf(p, config, layer + ".ffn", normalised));
  }
  const std::string head = config.tied_head ? "embedding.token.weight" : "head.weight";
  return CrossEntropy(p, head, Normalise(p, config, "final_norm", x), labels, config.logit_cap);
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
  at::Tensor hidden = Decode(p, config, target, target_positions, encoded);
  if (config.tied_head) hidden = hidden / std::sqrt(static_cast<double>(config.hidden));
  return CrossEntropy(p, config.tied_head ? DecoderTable(config) : "head.weight", hidden, labels);
}

}  // namespace penstock::worker
