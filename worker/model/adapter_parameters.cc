#include "worker/model/adapter_parameters.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace penstock::worker {
namespace {

class AdapterList {
 public:
  AdapterList(const ModelConfig& config, const GroupPlace& place) : config_(config), place_(place) {}

  void AddLayer(const std::string& prefix, bool cross) {
    const size_t first = specs_.size();
    AddAttention(prefix + "attention.");
    if (cross) AddAttention(prefix + "cross.");
    const RowStretch middle = {config_.ffn, config_.ffn};
    AddByRows(LinearLayer::kUp, prefix + "ffn.up", middle);
    AddByRows(LinearLayer::kGate, prefix + "ffn.gate", middle);
    AddByColumns(LinearLayer::kDown, prefix + "ffn.down", config_.ffn);
    if (specs_.size() > first) specs_[first].begins_layer = true;
  }

  std::vector<ParameterSpec> Take() { return std::move(specs_); }

 private:
  void AddAttention(const std::string& prefix) {
    const RowStretch queries = {AttentionInner(config_), config_.heads};
    const RowStretch keys = {KeyValueInner(config_), KeyValueHeads(config_)};
    AddByRows(LinearLayer::kQuery, prefix + "query", queries);
    AddByRows(LinearLayer::kKey, prefix + "key", keys);
    AddByRows(LinearLayer::kValue, prefix + "value", keys);
    AddByColumns(LinearLayer::kOutput, prefix + "output", AttentionInner(config_));
  }

  ParameterSpec& AddA(const std::string& name, int64_t in) {
    return specs_.emplace_back(ParameterSpec{.name = name + ".lora_a.weight",
                                             .shape = {config_.adapters.rank, in},
                                             .initial = Initial::kUniform,
                                             .bound = 1 / std::sqrt(static_cast<double>(in))});
  }
  ParameterSpec& AddB(const std::string& name, int64_t out) {
    return specs_.emplace_back(
        ParameterSpec{.name = name + ".lora_b.weight", .shape = {out, config_.adapters.rank}});
  }

  // Of a layer whose outputs the tensor ranks divide: reads `hidden`.
  void AddByRows(LinearLayer layer, const std::string& name, const RowStretch& outputs) {
    if (!config_.adapters.Has(layer)) return;
    ParameterSpec& a = AddA(name, config_.hidden);
    a.part = WholePart(a.shape, place_);
    ParameterSpec& b = AddB(name, outputs.rows);
    b.part = PartByRows(b.shape, {outputs}, place_);
  }

  // Of one whose inputs they divide: makes `hidden`.
  void AddByColumns(LinearLayer layer, const std::string& name, int64_t in) {
    if (!config_.adapters.Has(layer)) return;
    ParameterSpec& a = AddA(name, in);
    a.part = PartByColumns(a.shape, place_);
    ParameterSpec& b = AddB(name, config_.hidden);
    b.part = WholePart(b.shape, place_);
  }

  const ModelConfig& config_;
  const GroupPlace place_;
  std::vector<ParameterSpec> specs_;
};

}  // namespace

std::vector<ParameterSpec> AdapterSpecs(const ModelConfig& config, const StageRange& range,
                                        const GroupPlace& place) {
  AdapterList specs(config, place);
  for (const LayerStack& stack : ArchitectureOf(config).stacks) {
    const int64_t begin = std::max(range.first_layer, stack.first_layer);
    const int64_t end = std::min(range.first_layer + range.layers, stack.first_layer + stack.layers);
    for (int64_t layer = begin; layer < end; ++layer)
      specs.AddLayer(absl::StrCat(stack.name, ".", layer - stack.first_layer, "."), stack.cross);
  }
  return specs.Take();
}

std::vector<ParameterSpec> TrainedParameterSpecs(const ModelConfig& config, const StageRange& range,
                                                 const GroupPlace& place) {
  return config.adapters.any() ? AdapterSpecs(config, range, place)
                               : StageParameterSpecs(config, range, place);
}

std::vector<ParameterSpec> FrozenParameterSpecs(const ModelConfig& config, const StageRange& range,
                                                const GroupPlace& place) {
  return config.adapters.any() ? StageParameterSpecs(config, range, place) : std::vector<ParameterSpec>();
}

}  // namespace penstock::worker
