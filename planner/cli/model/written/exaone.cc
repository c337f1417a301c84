#include "common/status/status_macros.h"
#include "planner/cli/model/family_names.h"
#include "planner/cli/model/written/like_a_llama.h"
#include "planner/cli/model/written/written_configs.h"
#include "planner/cli/model/written/written_windows.h"

namespace penstock::cli {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

absl::StatusOr<Json> Exaone4Config(const v1::ModelSpec& model) {
  if (model.norm_placement() != v1::NORM_PLACEMENT_AFTER || !model.head_norms())
    return NotInFamily(kExaone4, "norm_placement and head_norms", "not AFTER with norms of each head");
  if (model.attention_biases() != v1::BIASES_NONE || HasAllBiases(model.feed_forward_biases()))
    return NotInFamily(kExaone4, "attention_biases and feed_forward_biases", "linear layers have a bias");
  // Layers without a window have no positions, and where no layer has one, all have them.
  const uint32_t turn = model.attention_window() > 0 ? model.windowless_interval() : 0;
  if (model.positionless_interval() != turn)
    return NotInFamily(kExaone4, "positionless_interval", "it is not that of layers without a window");
  PENSTOCK_ASSIGN_OR_RETURN(Json config, LikeALlama(model, kExaone4, "Exaone4ForCausalLM",
                                                    {.positionless_layers = true,
                                                     .window = true,
                                                     .windowless_layers = true,
                                                     .head_norms = true,
                                                     .norms_behind = true}));
  config["sliding_window"] = WindowOrNull(model);
  config["layer_types"] = LayerTypes(model);
  return config;
}

}  // namespace penstock::cli
