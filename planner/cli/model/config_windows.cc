#include "planner/cli/model/config_windows.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace penstock::cli {
namespace {

// For each layer of `layer_types`, whether it has a window.
std::vector<bool> WindowedLayers(ConfigFields& fields, uint32_t layers) {
  std::vector<bool> windowed;
  for (const nlohmann::json& type : fields.List("layer_types")) {
    windowed.push_back(type == "sliding_attention");
    if (type != "full_attention" && type != "sliding_attention")
      fields.Refuse("layer_types", absl::StrCat("has ", type.dump(),
                                                "; known are \"full_attention\" and \"sliding_attention\""));
  }
  if (windowed.size() != layers) {
    fields.Refuse("layer_types", absl::StrCat("has ", windowed.size(), " layers; the model has ", layers));
    windowed.resize(layers);
  }
  return windowed;
}

// Of layers the first of which without a window ends a turn: the length of a turn. 0: all have one.
uint32_t TurnOf(const std::vector<bool>& windowed) {
  const auto first = std::find(windowed.begin(), windowed.end(), false);
  return first == windowed.end() ? 0 : static_cast<uint32_t>(first - windowed.begin()) + 1;
}

bool AreTurns(const std::vector<bool>& windowed, uint32_t turn) {
  for (size_t i = 0; i < windowed.size(); ++i) {
    if (windowed[i] != (turn == 0 || (i + 1) % turn != 0)) return false;
  }
  return true;
}

// Of the layers that have one: by turns where they take turns, else one by one.
void SetWindowed(const std::vector<bool>& windowed, uint32_t window, ConfigFields& fields,
                 v1::ModelSpec& model) {
  if (std::find(windowed.begin(), windowed.end(), true) == windowed.end()) return;
  if (window == 0) return fields.Refuse("sliding_window", "is missing, but layers have one");
  model.set_attention_window(window);
  const uint32_t turn = TurnOf(windowed);
  if (AreTurns(windowed, turn)) return model.set_windowless_interval(turn);
  for (size_t i = 0; i < windowed.size(); ++i) {
    if (!windowed[i]) model.add_windowless_layers(static_cast<uint32_t>(i) + 1);
  }
}

}  // namespace

uint32_t ReadWindow(ConfigFields& fields, uint32_t usual) {
  if (fields.Has("sliding_window")) return fields.Count("sliding_window");
  fields.MeansNothing({"sliding_window"});
  return fields.Names("sliding_window") ? 0 : usual;
}

void SetWindows(ConfigFields& fields, uint32_t window, uint32_t interval, v1::ModelSpec& model) {
  if (fields.Has("layer_types"))
    return SetWindowed(WindowedLayers(fields, model.layers()), window, fields, model);
  fields.MeansNothing({"layer_types"});
  if (interval == 1 || window == 0) return;
  model.set_attention_window(window);
  // Of a model that is shorter than a turn all layers have one.
  model.set_windowless_interval(interval <= model.layers() ? interval : 0);
}

void ReadQwenWindows(ConfigFields& fields, v1::ModelSpec& model) {
  const bool used = fields.Flag("use_sliding_window", false);
  const uint32_t window = ReadWindow(fields, kUsualWindow);
  const double first = fields.Number("max_window_layers", 28);
  if (!used || window == 0) return fields.RequireAll("layer_types", "full_attention");
  if (fields.Has("layer_types")) return SetWindows(fields, window, 0, model);
  std::vector<bool> windowed(model.layers());
  for (size_t i = 0; i < windowed.size(); ++i) windowed[i] = static_cast<double>(i) >= first;
  SetWindowed(windowed, window, fields, model);
}

void ReadSmolLm3Windows(ConfigFields& fields, v1::ModelSpec& model) {
  const bool used = fields.Flag("use_sliding_window", false);
  const uint32_t window = ReadWindow(fields, 0);
  fields.MeansNothing({"max_window_layers"});
  if (!used || window == 0) return fields.RequireAll("layer_types", "full_attention");
  if (fields.Has("layer_types")) return SetWindows(fields, window, 0, model);
  fields.MeansNothing({"layer_types"});
  std::vector<bool> windowed(model.layers());
  for (size_t i = 0; i < windowed.size(); ++i) windowed[i] = (i + 1) % model.positionless_interval() == 0;
  SetWindowed(windowed, window, fields, model);
}

}  // namespace penstock::cli
