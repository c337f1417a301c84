#include <cstdint>

#include "common/status/status_macros.h"
#include "planner/cli/model/family_names.h"
#include "planner/cli/model/written/like_a_llama.h"
#include "planner/cli/model/written/written_configs.h"
#include "planner/cli/model/written/written_windows.h"

namespace penstock::cli {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

absl::StatusOr<Json> SmolLm3Config(const v1::ModelSpec& model) {
  PENSTOCK_ASSIGN_OR_RETURN(
      Json config, LikeALlama(model, kSmolLm3, "SmolLM3ForCausalLM",
                              {.positionless_layers = true, .window = true, .windowless_layers = true}));
  config["attention_bias"] = HasAllBiases(model.attention_biases());
  config["mlp_bias"] = HasAllBiases(model.feed_forward_biases());
  config["no_rope_layer_interval"] = model.positionless_interval();
  Json layers = Json::array();
  for (uint32_t i = 1; i <= model.layers(); ++i)
    layers.push_back(i % model.positionless_interval() == 0 ? 0 : 1);
  config["no_rope_layers"] = layers;
  AddQwenWindows(model, config);
  return config;
}

}  // namespace penstock::cli
