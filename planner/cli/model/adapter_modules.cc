#include "planner/cli/model/adapter_modules.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "planner/cli/model/checkpoint_names.h"

namespace penstock::cli {
namespace {

class OwnAdapterList {
 public:
  explicit OwnAdapterList(const v1::ModelSpec& model)
      : model_(model),
        hidden_(model.hidden()),
        inner_(model.attention_inner() > 0 ? model.attention_inner() : model.hidden()),
        keys_(inner_ / model.heads() *
              (model.key_value_heads() > 0 ? model.key_value_heads() : model.heads())) {}

  void AddStack(const std::string& stack, uint32_t layers, bool cross) {
    for (uint32_t i = 0; i < layers; ++i) {
      const std::string layer = absl::StrCat(stack, ".", i, ".");
      AddSelfAttention(layer + "attention.");
      if (cross) AddCrossAttention(layer + "cross.");
      Add({v1::LINEAR_LAYER_UP, layer + "ffn.up", layer + "ffn.up.weight", 0, model_.ffn(), hidden_});
      Add({v1::LINEAR_LAYER_GATE, layer + "ffn.gate", layer + "ffn.gate.weight", 0, model_.ffn(), hidden_});
      Add({v1::LINEAR_LAYER_DOWN, layer + "ffn.down", layer + "ffn.down.weight", 0, hidden_, model_.ffn()});
    }
  }

  std::vector<OwnAdapter> Take() { return std::move(adapters_); }

 private:
  void AddSelfAttention(const std::string& prefix) {
    const std::string weight = prefix + "qkv.weight";
    Add({v1::LINEAR_LAYER_QUERY, prefix + "query", weight, 0, inner_, hidden_});
    Add({v1::LINEAR_LAYER_KEY, prefix + "key", weight, inner_, keys_, hidden_});
    Add({v1::LINEAR_LAYER_VALUE, prefix + "value", weight, inner_ + keys_, keys_, hidden_});
    Add({v1::LINEAR_LAYER_OUTPUT, prefix + "output", prefix + "output.weight", 0, hidden_, inner_});
  }
  void AddCrossAttention(const std::string& prefix) {
    const std::string weight = prefix + "key_value.weight";
    Add({v1::LINEAR_LAYER_QUERY, prefix + "query", prefix + "query.weight", 0, inner_, hidden_});
    Add({v1::LINEAR_LAYER_KEY, prefix + "key", weight, 0, keys_, hidden_});
    Add({v1::LINEAR_LAYER_VALUE, prefix + "value", weight, keys_, keys_, hidden_});
    Add({v1::LINEAR_LAYER_OUTPUT, prefix + "output", prefix + "output.weight", 0, hidden_, inner_});
  }
  void Add(OwnAdapter adapter) {
    const auto& targets = model_.adapters().targets();
    if (std::find(targets.begin(), targets.end(), adapter.layer) != targets.end())
      adapters_.push_back(std::move(adapter));
  }

  const v1::ModelSpec& model_;
  const int64_t hidden_;
  const int64_t inner_;
  const int64_t keys_;
  std::vector<OwnAdapter> adapters_;
};

// Which of their tensors has the adapter's rows, and from which of its rows on.
struct Place {
  const TensorPiece* piece = nullptr;
  int64_t first_output = 0;
};

Place PlaceOf(const OwnAdapter& adapter, const TensorNames& names) {
  int64_t begin = 0;
  for (const TensorPiece& piece : names.pieces) {
    if (adapter.first_row < begin + piece.rows) return {&piece, piece.first_row + adapter.first_row - begin};
    begin += piece.rows;
  }
  return {&names.pieces.back(), 0};
}

}  // namespace

std::vector<OwnAdapter> OwnAdapters(const v1::ModelSpec& model) {
  OwnAdapterList adapters(model);
  if (model.architecture() == v1::ARCHITECTURE_T5) {
    adapters.AddStack("encoder", model.encoder_layers(), /*cross=*/false);
    adapters.AddStack("decoder", model.decoder_layers(), /*cross=*/true);
  } else {
    adapters.AddStack("layers", model.layers(), /*cross=*/false);
  }
  return adapters.Take();
}

std::vector<AdapterModule> AdapterModules(const v1::ModelSpec& model, const std::string& family) {
  const std::vector<TensorNames> tensors = CheckpointNames(model, family);
  std::map<std::string, const TensorNames*> by_name;
  for (const TensorNames& names : tensors) by_name[names.name] = &names;
  std::vector<AdapterModule> modules;
  std::map<std::string, size_t> places;
  for (const OwnAdapter& adapter : OwnAdapters(model)) {
    const Place place = PlaceOf(adapter, *by_name.at(adapter.weight));
    const std::string name(absl::StripSuffix(place.piece->name, ".weight"));
    const auto [found, added] = places.try_emplace(name, modules.size());
    if (added) modules.push_back({name, place.piece->rows_of_whole(), adapter.inputs, {}});
    modules[found->second].parts.push_back({adapter, place.first_output});
  }
  return modules;
}

std::string TargetOf(const AdapterModule& module) {
  const size_t dot = module.name.rfind('.');
  const std::string last = module.name.substr(dot + 1);
  // GPT-2 has two of one name, and Starcoder 2 one.
  if (last != "c_proj") return last;
  return module.name.substr(module.name.rfind('.', dot - 1) + 1);
}

}  // namespace penstock::cli
