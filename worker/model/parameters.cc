#include "worker/model/parameters.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

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
  at::parallel_for(0, values.numel(), kParallelGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      data[i] = StandardNormal(key, static_cast<uint64_t>(i)) * spec.standard_deviation;
    }
  });
  return values;
}

class SpecList {
 public:
  void AddNorm(const std::string& name, int64_t width) {
    specs_.push_back({absl::StrCat(name, ".weight"), {width}, Initial::kOne, 0});
    specs_.push_back({absl::StrCat(name, ".bias"), {width}, Initial::kZero, 0});
  }

  void AddMatrix(const std::string& name, int64_t out, int64_t in, double deviation) {
    specs_.push_back({absl::StrCat(name, ".weight"), {out, in}, Initial::kNormal, deviation});
  }

  void AddLinear(const std::string& name, int64_t out, int64_t in, double deviation) {
    AddMatrix(name, out, in, deviation);
    specs_.push_back({absl::StrCat(name, ".bias"), {out}, Initial::kZero, 0});
  }

  std::vector<ParameterSpec> Take() { return std::move(specs_); }

 private:
  std::vector<ParameterSpec> specs_;
};

void AddLayer(const ModelConfig& config, int64_t layer, SpecList& specs) {
  const std::string prefix = absl::StrCat("layers.", layer, ".");
  const int64_t inner = AttentionInner(config);
  const double residual = kStandardDeviation / std::sqrt(2.0 * static_cast<double>(config.layers));
  specs.AddNorm(prefix + "attention_norm", config.hidden);
  specs.AddLinear(prefix + "attention.qkv", 3 * inner, config.hidden, kStandardDeviation);
  specs.AddLinear(prefix + "attention.output", config.hidden, inner, residual);
  specs.AddNorm(prefix + "ffn_norm", config.hidden);
  specs.AddLinear(prefix + "ffn.up", config.ffn, config.hidden, kStandardDeviation);
  specs.AddLinear(prefix + "ffn.down", config.hidden, config.ffn, residual);
}

}  // namespace

int64_t AttentionInner(const ModelConfig& config) {
  return config.attention_inner == 0 ? config.hidden : config.attention_inner;
}

std::vector<ParameterSpec> StageParameterSpecs(const ModelConfig& config, const StageRange& range) {
  SpecList specs;
  if (range.first) {
    specs.AddMatrix("embedding.token", config.vocab, config.hidden, kStandardDeviation);
    specs.AddMatrix("embedding.position", config.max_sequence_length, config.hidden, kStandardDeviation);
  }
  for (int64_t layer = 0; layer < range.layers; ++layer) AddLayer(config, range.first_layer + layer, specs);
  if (range.last) {
    specs.AddNorm("final_norm", config.hidden);
    specs.AddMatrix("head", config.vocab, config.hidden, kStandardDeviation);
  }
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
