// EXAONE 4.
#include "planner/cli/model/config_families.h"
#include "planner/cli/model/config_like_a_llama.h"
#include "planner/cli/model/config_windows.h"

namespace penstock::cli {
namespace {

// Where the configuration has a window, layers without one have no positions.
void TurnWindowedLayersAlone(ConfigFields& fields, v1::ModelSpec& model) {
  if (model.windowless_layers_size() > 0) {
    return fields.Refuse("layer_types",
                         "layers without a window, which have no positions, are not every n-th: Penstock "
                         "leaves positions out of every n-th layer alone");
  }
  // A turn of one: no layer has a window.
  const uint32_t turn = model.attention_window() > 0 ? model.windowless_interval() : 1;
  model.set_positionless_interval(turn);
}

}  // namespace

void ReadExaone4(ConfigFields& fields, v1::ModelSpec& model) {
  ReadLikeALlama(fields, model, {.epsilon = 1e-5});
  model.set_attention_biases(v1::BIASES_NONE);
  model.set_head_norms(true);
  model.set_norm_placement(v1::NORM_PLACEMENT_AFTER);
  const uint32_t window = ReadWindow(fields, kUsualWindow);
  // The list says what the pattern makes.
  if (fields.Has("layer_types") || window == 0) fields.MeansNothing({"sliding_window_pattern"});
  const bool by_list = fields.Has("layer_types") || window == 0;
  SetWindows(fields, window, by_list ? 0 : fields.Count("sliding_window_pattern", 4), model);
  if (window > 0) TurnWindowedLayersAlone(fields, model);
}

}  // namespace penstock::cli
