#include "planner/cli/model/linear_layer_names.h"

#include <algorithm>
#include <functional>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "planner/core/contract/adapters.h"

namespace penstock::cli {
namespace {

using LinearLayers = std::vector<v1::LinearLayer>;

constexpr v1::LinearLayer kQuery = v1::LINEAR_LAYER_QUERY;
constexpr v1::LinearLayer kKey = v1::LINEAR_LAYER_KEY;
constexpr v1::LinearLayer kValue = v1::LINEAR_LAYER_VALUE;
constexpr v1::LinearLayer kOutput = v1::LINEAR_LAYER_OUTPUT;
constexpr v1::LinearLayer kGate = v1::LINEAR_LAYER_GATE;
constexpr v1::LinearLayer kUp = v1::LINEAR_LAYER_UP;
constexpr v1::LinearLayer kDown = v1::LINEAR_LAYER_DOWN;

// Penstock's, then those of Llama and the like, of GPT-2, of Phi-3 and of T5. A T5 with one `wi` has no gate.
const std::map<std::string, LinearLayers, std::less<>>& LayersByName() {
  static const auto* layers =
      new std::map<std::string, LinearLayers, std::less<>>{{"q", {kQuery}},
                                                           {"k", {kKey}},
                                                           {"v", {kValue}},
                                                           {"o", {kOutput}},
                                                           {"gate", {kGate}},
                                                           {"up", {kUp}},
                                                           {"down", {kDown}},
                                                           {"q_proj", {kQuery}},
                                                           {"k_proj", {kKey}},
                                                           {"v_proj", {kValue}},
                                                           {"o_proj", {kOutput}},
                                                           {"gate_proj", {kGate}},
                                                           {"up_proj", {kUp}},
                                                           {"down_proj", {kDown}},
                                                           {"c_attn", {kQuery, kKey, kValue}},
                                                           {"attn.c_proj", {kOutput}},
                                                           {"c_fc", {kUp}},
                                                           {"mlp.c_proj", {kDown}},
                                                           {"c_proj", {kOutput, kDown}},
                                                           {"qkv_proj", {kQuery, kKey, kValue}},
                                                           {"gate_up_proj", {kGate, kUp}},
                                                           {"wi", {kUp}},
                                                           {"wi_0", {kGate}},
                                                           {"wi_1", {kUp}},
                                                           {"wo", {kDown}}};
  return *layers;
}

const char* ShortName(v1::LinearLayer layer) {
  static const char* const names[] = {"?", "q", "k", "v", "o", "gate", "up", "down"};
  return names[layer];
}

}  // namespace

LinearLayers AllLinearLayers(const v1::ModelSpec& model) {
  LinearLayers layers = {kQuery, kKey, kValue, kOutput};
  if (core::IsGated(model)) layers.push_back(kGate);
  layers.insert(layers.end(), {kUp, kDown});
  return layers;
}

absl::StatusOr<LinearLayers> LinearLayersCalled(absl::string_view name, const v1::ModelSpec& model) {
  if (name == "all-linear") return AllLinearLayers(model);
  const auto found = LayersByName().find(std::string(name));
  if (found == LayersByName().end()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", name, "' is no linear layer; known are q, k, v, o, gate, up, down, all-linear, and what ",
        "transformers calls them: q_proj, c_attn, wi, ..."));
  }
  const LinearLayers of_model = AllLinearLayers(model);
  for (const v1::LinearLayer layer : found->second) {
    if (std::find(of_model.begin(), of_model.end(), layer) == of_model.end())
      return absl::InvalidArgumentError(absl::StrCat("'", name, "': the model has no ", ShortName(layer)));
  }
  return found->second;
}

std::string NamesOf(const v1::Adapters& adapters) {
  return absl::StrJoin(adapters.targets(), ", ", [](std::string* text, int layer) {
    absl::StrAppend(text, ShortName(static_cast<v1::LinearLayer>(layer)));
  });
}

}  // namespace penstock::cli
