#include "worker/model/parameters.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace penstock::worker {
namespace {

constexpr double kStandardDeviation = 0.02;
constexpr int64_t kParallelGrain = 1 << 14;

// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
constexpr uint64_t kGoldenGamma = 0x9e3779b97f4a7c15;

uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// FNV-1a over the name, mixed with the seed.
uint64_t Key(uint64_t seed, const std::string& name) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const unsigned char c : name) hash = (hash ^ c) * 0x100000001b3;
  return Mix(hash ^ Mix(seed + kGoldenGamma));
}

// Sum of twelve 16-bit uniforms, standardised: close to normal within six deviations, and exact in integers,
// so that no machine's logarithm or cosine has a say.
double StandardNormal(uint64_t key, uint64_t index) {
  constexpr int kWords = 3;
  constexpr int64_t kMeanOfSum = 12 * 65535 / 2;
  constexpr double kDeviationOfSum = 65536.0;
  int64_t sum = 0;
  for (uint64_t word = 0; word < kWords; ++word) {
    const uint64_t bits = Mix(key + (index * kWords + word + 1) * kGoldenGamma);
    for (int shift = 0; shift < 64; shift += 16) sum += static_cast<int64_t>((bits >> shift) & 0xffff);
  }
  return static_cast<double>(sum - kMeanOfSum) / kDeviationOfSum;
}

at::Tensor NormalValues(const ParameterSpec& spec, uint64_t seed) {
  at::Tensor values = at::empty(spec.shape, at::kDouble);
  double* const data = values.mutable_data_ptr<double>();
  const uint64_t key = Key(seed, spec.name);
  const int64_t leading = spec.leading_rows > 0 ? spec.leading_rows * values.stride(0) : 0;
  at::parallel_for(0, values.numel(), kParallelGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const double deviation = i < leading ? spec.leading_deviation : spec.standard_deviation;
      data[i] = StandardNormal(key, static_cast<uint64_t>(i)) * deviation;
    }
  });
  return values;
}

// Standard deviations of the weights, by where they stand.
struct Deviations {
  double embedding = kStandardDeviation;
  double query = kStandardDeviation;
  // Key and value rows, the way up in the feed-forward part.
  double inwards = kStandardDeviation;
  // What is added to the residual stream.
  double attention_output = kStandardDeviation;
  double down = kStandardDeviation;
  double relative_bias = kStandardDeviation;
  double head = kStandardDeviation;
};

Deviations DeviationsOf(const ModelConfig& config) {
  Deviations result;
  if (config.architecture == Architecture::kGpt) {
    result.attention_output = result.down =
        kStandardDeviation / std::sqrt(2.0 * static_cast<double>(config.layers));
    return result;
  }
  const auto inverse_root = [](int64_t value) { return 1 / std::sqrt(static_cast<double>(value)); };
  const int64_t inner = AttentionInner(config);
  result.embedding = 1;
  result.query = inverse_root(config.hidden * (inner / config.heads));
  result.inwards = result.relative_bias = result.head = inverse_root(config.hidden);
  result.attention_output = inverse_root(inner);
  result.down = inverse_root(config.ffn);
  return result;
}

class SpecList {
 public:
  explicit SpecList(const ModelConfig& config)
      : config_(config),
        architecture_(ArchitectureOf(config)),
        deviations_(DeviationsOf(config)),
        inner_(AttentionInner(config)) {}

  void AddEmbedding(const std::string& name) {
    AddMatrix(name + ".token", config_.vocab, config_.hidden, deviations_.embedding);
    if (architecture_.learned_positions) {
      AddMatrix(name + ".position", config_.max_sequence_length, config_.hidden, deviations_.embedding);
    }
  }

  void AddRelativeBias(const LayerStack& stack, bool copy) {
    AddMatrix(stack.name + ".relative_bias", config_.relative_position_buckets, config_.heads,
              deviations_.relative_bias);
    specs_.back().shared = true;
    specs_.back().copy = copy;
  }

  void AddLayer(const LayerStack& stack, int64_t layer) {
    const std::string prefix = absl::StrCat(stack.name, ".", layer, ".");
    AddNorm(prefix + "attention_norm");
    AddLinear(prefix + "attention.qkv", 3 * inner_, config_.hidden, deviations_.inwards);
    LeadWith(inner_, deviations_.query);
    AddLinear(prefix + "attention.output", config_.hidden, inner_, deviations_.attention_output);
    if (stack.cross) {
      AddNorm(prefix + "cross_norm");
      AddLinear(prefix + "cross.query", inner_, config_.hidden, deviations_.query);
      AddLinear(prefix + "cross.key_value", 2 * inner_, config_.hidden, deviations_.inwards);
      AddLinear(prefix + "cross.output", config_.hidden, inner_, deviations_.attention_output);
    }
    AddNorm(prefix + "ffn_norm");
    AddLinear(prefix + "ffn.up", config_.ffn, config_.hidden, deviations_.inwards);
    if (architecture_.gated) AddLinear(prefix + "ffn.gate", config_.ffn, config_.hidden, deviations_.inwards);
    AddLinear(prefix + "ffn.down", config_.hidden, config_.ffn, deviations_.down);
  }

  void AddNorm(const std::string& name) {
    specs_.push_back({.name = name + ".weight", .shape = {config_.hidden}, .initial = Initial::kOne});
    if (architecture_.norm == NormKind::kLayer) {
      specs_.push_back({.name = name + ".bias", .shape = {config_.hidden}});
    }
  }

  void AddHead() { AddMatrix("head", config_.vocab, config_.hidden, deviations_.head); }

  std::vector<ParameterSpec> Take() { return std::move(specs_); }

 private:
  void AddMatrix(const std::string& name, int64_t out, int64_t in, double deviation) {
    specs_.push_back({.name = name + ".weight",
                      .shape = {out, in},
                      .initial = Initial::kNormal,
                      .standard_deviation = deviation});
  }

  void AddLinear(const std::string& name, int64_t out, int64_t in, double deviation) {
    AddMatrix(name, out, in, deviation);
    if (architecture_.bias) specs_.push_back({.name = name + ".bias", .shape = {out}});
  }

  // The first rows of the linear layer that was added last.
  void LeadWith(int64_t rows, double deviation) {
    ParameterSpec& weight = specs_[specs_.size() - (architecture_.bias ? 2 : 1)];
    weight.leading_rows = rows;
    weight.leading_deviation = deviation;
  }

  const ModelConfig& config_;
  const ModelArchitecture architecture_;
  const Deviations deviations_;
  const int64_t inner_;
  std::vector<ParameterSpec> specs_;
};

bool HoldsLayer(const StageRange& range, int64_t layer) {
  return range.first_layer <= layer && layer < range.first_layer + range.layers;
}

// What the stage holds of a stack; `embeds`: its token embedding too.
void AddStack(const ModelArchitecture& architecture, const LayerStack& stack, const StageRange& range,
              bool embeds, SpecList& specs) {
  if (embeds) specs.AddEmbedding(stack.embedding);
  const int64_t begin = std::max(range.first_layer, stack.first_layer);
  const int64_t end = std::min(range.first_layer + range.layers, stack.first_layer + stack.layers);
  if (begin >= end) return;
  if (!architecture.learned_positions) specs.AddRelativeBias(stack, /*copy=*/begin > stack.first_layer);
  for (int64_t layer = begin; layer < end; ++layer) specs.AddLayer(stack, layer - stack.first_layer);
  if (stack.final_norm && end == stack.first_layer + stack.layers) specs.AddNorm(stack.name + ".final_norm");
}

}  // namespace

StageRange StageRangeOf(const std::vector<uint32_t>& layers_per_stage, uint32_t stage) {
  StageRange range = {.first_layer = 0,
                      .layers = layers_per_stage[stage],
                      .first = stage == 0,
                      .last = stage + 1 == layers_per_stage.size()};
  for (uint32_t i = 0; i < stage; ++i) range.first_layer += layers_per_stage[i];
  return range;
}

bool EmbedsSource(const ModelConfig& config, const StageRange& range) {
  return config.architecture == Architecture::kT5 && range.first;
}

bool EmbedsTarget(const ModelConfig& config, const StageRange& range) {
  return config.architecture == Architecture::kT5 ? HoldsLayer(range, config.encoder_layers) : range.first;
}

std::vector<ParameterSpec> StageParameterSpecs(const ModelConfig& config, const StageRange& range) {
  SpecList specs(config);
  const ModelArchitecture architecture = ArchitectureOf(config);
  for (const LayerStack& stack : architecture.stacks) {
    const bool last = &stack == &architecture.stacks.back();
    AddStack(architecture, stack, range, last ? EmbedsTarget(config, range) : EmbedsSource(config, range),
             specs);
  }
  if (range.last) {
    specs.AddNorm("final_norm");
    specs.AddHead();
  }
  return specs.Take();
}

std::vector<ParameterSpec> SharedParameterSpecs(const ModelConfig& config) {
  SpecList specs(config);
  const ModelArchitecture architecture = ArchitectureOf(config);
  if (architecture.learned_positions) return {};
  for (const LayerStack& stack : architecture.stacks) specs.AddRelativeBias(stack, /*copy=*/false);
  return specs.Take();
}

at::Tensor InitialValue(const ParameterSpec& spec, uint64_t seed, at::ScalarType type, at::Device device) {
  const at::TensorOptions options = at::TensorOptions().dtype(type).device(device);
  switch (spec.initial) {
    case Initial::kZero:
      return at::zeros(spec.shape, options);
    case Initial::kOne:
      return at::ones(spec.shape, options);
    case Initial::kNormal:
      return NormalValues(spec, seed).to(options);
  }
  return {};
}

}  // namespace penstock::worker
