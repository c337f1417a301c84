#include "planner/cli/model/written/written_windows.h"

#include <cstdint>
#include <set>

namespace penstock::cli {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

Json LayerTypes(const v1::ModelSpec& model) {
  const std::set<uint32_t> windowless(model.windowless_layers().begin(), model.windowless_layers().end());
  const uint32_t interval = model.windowless_interval();
  Json types = Json::array();
  for (uint32_t i = 1; i <= model.layers(); ++i) {
    const bool by_turns = interval > 0 && i % interval == 0;
    const bool windowed = model.attention_window() > 0 && !by_turns && !windowless.contains(i);
    types.push_back(windowed ? "sliding_attention" : "full_attention");
  }
  return types;
}

Json WindowOrNull(const v1::ModelSpec& model) {
  return model.attention_window() > 0 ? Json(model.attention_window()) : Json();
}

void AddQwenWindows(const v1::ModelSpec& model, Json& config) {
  config["use_sliding_window"] = model.attention_window() > 0;
  if (model.attention_window() == 0) return;
  config["sliding_window"] = model.attention_window();
  config["layer_types"] = LayerTypes(model);
}

}  // namespace penstock::cli
