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

// From -1 to 1 without it, in steps of 2^-52: exact.
double StandardUniform(uint64_t key, uint64_t index) {
  constexpr int kUnusedBits = 11;
  constexpr double kStep = 0x1p-52;
  const uint64_t bits = Mix(key + (index + 1) * kGoldenGamma) >> kUnusedBits;
  return static_cast<double>(bits) * kStep - 1;
}

double DrawElement(const ParameterSpec& spec, uint64_t key, int64_t element, int64_t leading) {
  const auto index = static_cast<uint64_t>(element);
  if (spec.initial == Initial::kUniform) return StandardUniform(key, index) * spec.bound;
  return StandardNormal(key, index) * (element < leading ? spec.leading_deviation : spec.standard_deviation);
}

// Elements `begin` to `end` of a block, row by row, to `data`.
void DrawBlock(const ParameterSpec& spec, const Block& block, uint64_t key, int64_t begin, int64_t end,
               double* data) {
  const int64_t whole_columns = WholeBlock(spec.shape).columns();
  const int64_t leading = spec.leading_rows * whole_columns;
  int64_t row = begin / block.columns();
  int64_t column = begin % block.columns();
  for (int64_t i = begin; i < end; ++i) {
    const int64_t element = (block.first_row + row) * whole_columns + block.first_column + column;
    data[i] = DrawElement(spec, key, element, leading);
    if (++column == block.columns()) {
      column = 0;
      ++row;
    }
  }
}

at::Tensor DrawnValues(const ParameterSpec& spec, const ParameterPart& part, uint64_t seed) {
  at::Tensor values = at::empty(part.shape, at::kDouble);
  double* data = values.mutable_data_ptr<double>();
  const uint64_t key = Key(seed, spec.name);
  for (const OwnBlock& own : part.blocks) {
    const int64_t elements = own.block.elements();
    at::parallel_for(0, elements, kParallelGrain,
                     [&](int64_t begin, int64_t end) { DrawBlock(spec, own.block, key, begin, end, data); });
    data += elements;
  }
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
  result.query = inverse_root(config.hidden * HeadWidth(config));
  result.inwards = result.relative_bias = result.head = inverse_root(config.hidden);
  result.attention_output = inverse_root(inner);
  result.down = inverse_root(config.ffn);
  return result;
}

// The embedding whose token table is used more than once; empty where none is.
std::string TiedTable(const ModelConfig& config, const ModelArchitecture& architecture) {
  return config.tied_head || config.tied_embeddings ? architecture.stacks.back().embedding : "";
}

class SpecList {
 public:
  // `copies`: a token embedding that is tied has another stage that comes first.
  SpecList(const ModelConfig& config, const GroupPlace& place, bool copies)
      : config_(config),
        place_(place),
        architecture_(ArchitectureOf(config)),
        deviations_(DeviationsOf(config)),
        inner_(AttentionInner(config)),
        copies_(copies) {}

  void AddEmbedding(const std::string& name) {
    AddTokenTable(name);
    if (architecture_.position == Position::kLearned) {
      AddMatrix(name + ".position", config_.max_sequence_length, config_.hidden, deviations_.embedding);
      specs_.back().part = WholePart(specs_.back().shape, place_);
    }
  }

  // Once, of those that are tied to each other; other stages may then hold it too.
  void AddTokenTable(const std::string& name) {
    const std::string weight = name + ".token";
    for (const ParameterSpec& spec : specs_) {
      if (spec.name == weight + ".weight") return;
    }
    AddTable(weight, deviations_.embedding);
    if (name == TiedTable(config_, architecture_)) Share(copies_);
  }

  void AddRelativeBias(const LayerStack& stack, bool copy) {
    AddMatrix(stack.name + ".relative_bias", config_.relative_position_buckets, config_.heads,
              deviations_.relative_bias);
    specs_.back().part = PartByColumns(specs_.back().shape, place_);
    Share(copy);
  }

  void AddLayer(const LayerStack& stack, int64_t layer) {
    const std::string prefix = absl::StrCat(stack.name, ".", layer, ".");
    const size_t first = specs_.size();
    AddNormBefore(prefix + "attention_norm");
    AddInwards(prefix + "attention.qkv", {queries_, keys_, keys_}, deviations_.inwards);
    LeadWith(inner_, deviations_.query);
    if (config_.head_norms) {
      AddHeadNorm(prefix + "attention.query_norm");
      AddHeadNorm(prefix + "attention.key_norm");
    }
    if (config_.joint_head_norms) {
      AddJointHeadNorm(prefix + "attention.query_norm", queries_);
      AddJointHeadNorm(prefix + "attention.key_norm", keys_);
    }
    AddOutwards(prefix + "attention.output");
    AddNormAfter(prefix + "attention_output_norm");
    if (stack.cross) {
      AddNorm(prefix + "cross_norm");
      AddInwards(prefix + "cross.query", {queries_}, deviations_.query);
      AddInwards(prefix + "cross.key_value", {keys_, keys_}, deviations_.inwards);
      AddOutwards(prefix + "cross.output");
    }
    AddNormBefore(prefix + "ffn_norm");
    if (HasExperts(config_, layer)) {
      AddExperts(prefix + "ffn.");
    } else {
      AddDense(prefix + "ffn.", DenseWidth(config_), architecture_.feed_forward_bias);
    }
    AddNormAfter(prefix + "ffn_output_norm");
    specs_[first].begins_layer = true;
  }

  void AddDense(const std::string& prefix, int64_t ffn, bool bias) {
    const RowStretch middle = {ffn, ffn};
    AddByRows(prefix + "up", {middle}, bias, deviations_.inwards);
    if (architecture_.gated) AddByRows(prefix + "gate", {middle}, bias, deviations_.inwards);
    AddByColumns(prefix + "down", ffn, bias, deviations_.down);
  }

  // All layers of one kind follow each other, as the matrix of all of them.
  void AddExperts(const std::string& prefix) {
    AddMatrix(prefix + "router", config_.experts, config_.hidden, deviations_.inwards);
    specs_.back().part = WholePart(specs_.back().shape, place_);
    const RowStretch middle = {config_.ffn, config_.ffn};
    AddOfExperts(prefix, [&](const std::string& expert) {
      AddByRows(expert + "up", {middle}, /*bias=*/false, deviations_.inwards);
    });
    if (architecture_.gated) {
      AddOfExperts(prefix, [&](const std::string& expert) {
        AddByRows(expert + "gate", {middle}, /*bias=*/false, deviations_.inwards);
      });
    }
    AddOfExperts(prefix, [&](const std::string& expert) {
      AddByColumns(expert + "down", config_.ffn, /*bias=*/false, deviations_.down);
    });
    if (config_.shared_expert_ffn == 0) return;
    AddDense(prefix + "shared.", config_.shared_expert_ffn, /*bias=*/false);
    if (!config_.gated_shared_expert) return;
    AddMatrix(prefix + "shared_gate", 1, config_.hidden, deviations_.inwards);
    specs_.back().part = WholePart(specs_.back().shape, place_);
  }

  // `add` adds a matrix of an expert, for each that this rank has.
  template <typename Add>
  void AddOfExperts(const std::string& prefix, Add add) {
    const int64_t count = config_.experts / place_.experts;
    const int64_t first = place_.expert() * count;
    for (int64_t i = first; i < first + count; ++i) {
      add(absl::StrCat(prefix, "experts.", i, "."));
      if (place_.experts == 1) continue;
      specs_.back().of_expert = true;
      specs_.back().part = OwnPart(specs_.back().shape, place_);
    }
  }

  // Of queries or keys, which all heads have in common.
  void AddHeadNorm(const std::string& name) {
    AddNormWeight(name, HeadWidth(config_));
    specs_.back().part = WholePart(specs_.back().shape, place_);
  }

  // Of all heads, divided as they are.
  void AddJointHeadNorm(const std::string& name, const RowStretch& heads) {
    AddNormWeight(name, heads.rows);
    specs_.back().part = PartByRows(specs_.back().shape, {heads}, place_);
  }

  void AddNormBefore(const std::string& name) {
    if (architecture_.norm_before) AddNorm(name);
  }
  void AddNormAfter(const std::string& name) {
    if (architecture_.norm_after) AddNorm(name);
  }

  void AddNorm(const std::string& name) {
    AddNormWeight(name, config_.hidden);
    specs_.back().part = WholePart(specs_.back().shape, place_);
    if (architecture_.norm == NormKind::kLayer) AddWholeBias(name);
  }

  void AddHead() {
    if (config_.tied_head) {
      AddTokenTable(architecture_.stacks.back().embedding);
    } else {
      AddTable("head", deviations_.head);
    }
  }

  std::vector<ParameterSpec> Take() { return std::move(specs_); }

 private:
  // Multiplies by 1 at the begin.
  void AddNormWeight(const std::string& name, int64_t elements) {
    specs_.push_back({.name = name + ".weight",
                      .shape = {elements},
                      .initial = config_.offset_norms ? Initial::kZero : Initial::kOne});
  }

  void Share(bool copy) {
    specs_.back().shared = true;
    specs_.back().copy = copy;
  }

  void AddMatrix(const std::string& name, int64_t out, int64_t in, double deviation) {
    specs_.push_back({.name = name + ".weight",
                      .shape = {out, in},
                      .initial = Initial::kNormal,
                      .standard_deviation = deviation});
  }

  // A row for each token.
  void AddTable(const std::string& name, double deviation) {
    AddMatrix(name, config_.vocab, config_.hidden, deviation);
    specs_.back().part = PartByRows(specs_.back().shape, {{config_.vocab, config_.vocab}}, place_);
  }

  // To queries, keys or values.
  void AddInwards(const std::string& name, const std::vector<RowStretch>& stretches, double deviation) {
    AddByRows(name, stretches, architecture_.query_key_value_bias, deviation);
  }

  void AddOutwards(const std::string& name) {
    AddByColumns(name, inner_, architecture_.attention_output_bias, deviations_.attention_output);
  }

  // Linear layers. One whose output the tensor ranks divide: reads `hidden`.
  void AddByRows(const std::string& name, const std::vector<RowStretch>& stretches, bool bias,
                 double deviation) {
    int64_t out = 0;
    for (const RowStretch& stretch : stretches) out += stretch.rows;
    AddMatrix(name, out, config_.hidden, deviation);
    specs_.back().part = PartByRows(specs_.back().shape, stretches, place_);
    if (!bias) return;
    specs_.push_back({.name = name + ".bias", .shape = {out}});
    specs_.back().part = PartByRows(specs_.back().shape, stretches, place_);
  }

  // One whose input they divide: makes `hidden`.
  void AddByColumns(const std::string& name, int64_t in, bool bias, double deviation) {
    AddMatrix(name, config_.hidden, in, deviation);
    specs_.back().part = PartByColumns(specs_.back().shape, place_);
    if (bias) AddWholeBias(name);
  }

  void AddWholeBias(const std::string& name) {
    specs_.push_back({.name = name + ".bias", .shape = {config_.hidden}});
    specs_.back().part = WholePart(specs_.back().shape, place_);
  }

  // The first rows of what makes queries, keys and values, which was added last.
  void LeadWith(int64_t rows, double deviation) {
    ParameterSpec& weight = specs_[specs_.size() - (architecture_.query_key_value_bias ? 2 : 1)];
    weight.leading_rows = rows;
    weight.leading_deviation = deviation;
  }

  const ModelConfig& config_;
  const GroupPlace place_;
  const ModelArchitecture architecture_;
  const Deviations deviations_;
  const int64_t inner_;
  const RowStretch queries_ = {inner_, config_.heads};
  const RowStretch keys_ = {KeyValueInner(config_), KeyValueHeads(config_)};
  const bool copies_;
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
  if (architecture.position == Position::kRelativeBias)
    specs.AddRelativeBias(stack, /*copy=*/begin > stack.first_layer);
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

std::vector<ParameterSpec> StageParameterSpecs(const ModelConfig& config, const StageRange& range,
                                               const GroupPlace& place) {
  const bool first_use = config.tied_embeddings ? range.first : EmbedsTarget(config, range);
  SpecList specs(config, place, /*copies=*/!first_use);
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

std::vector<ParameterSpec> SharedParameterSpecs(const ModelConfig& config, const GroupPlace& place) {
  if (config.adapters.any()) return {};
  SpecList specs(config, place, /*copies=*/false);
  const ModelArchitecture architecture = ArchitectureOf(config);
  const std::string tied = TiedTable(config, architecture);
  if (!tied.empty()) specs.AddTokenTable(tied);
  if (architecture.position != Position::kRelativeBias) return specs.Take();
  for (const LayerStack& stack : architecture.stacks) specs.AddRelativeBias(stack, /*copy=*/false);
  return specs.Take();
}

at::Tensor InitialValue(const ParameterSpec& spec, uint64_t seed, at::ScalarType type, at::Device device) {
  const at::TensorOptions options = at::TensorOptions().dtype(type).device(device);
  const ParameterPart part = spec.own_part();
  switch (spec.initial) {
    case Initial::kZero:
      return at::zeros(part.shape, options);
    case Initial::kOne:
      return at::ones(part.shape, options);
    case Initial::kNormal:
    case Initial::kUniform:
      return DrawnValues(spec, part, seed).to(options);
  }
  return {};
}

}  // namespace penstock::worker
