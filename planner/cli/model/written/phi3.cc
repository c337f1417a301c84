#include "common/status/status_macros.h"
#include "planner/cli/model/family_names.h"
#include "planner/cli/model/written/like_a_llama.h"
#include "planner/cli/model/written/written_configs.h"
#include "planner/cli/model/written/written_windows.h"

namespace penstock::cli {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

absl::StatusOr<Json> Phi3Config(const v1::ModelSpec& model) {
  if (model.attention_biases() != v1::BIASES_NONE || HasAllBiases(model.feed_forward_biases()))
    return NotInFamily(kPhi3, "attention_biases and feed_forward_biases", "linear layers have a bias");
  if (AttentionInner(model) != model.hidden())
    return NotInFamily(kPhi3, "attention_inner", "differs from hidden");
  PENSTOCK_ASSIGN_OR_RETURN(Json config, LikeALlama(model, kPhi3, "Phi3ForCausalLM",
                                                    {.window = true, .part_of_heads_turns = true}));
  config["sliding_window"] = WindowOrNull(model);
  const uint32_t width = model.rotary().width() > 0 ? model.rotary().width() : HeadWidth(model);
  config["partial_rotary_factor"] = static_cast<double>(width) / HeadWidth(model);
  config["rope_parameters"]["partial_rotary_factor"] = config["partial_rotary_factor"];
  if (model.rotary().original_max_sequence_length() > 0)
    config["original_max_position_embeddings"] = model.rotary().original_max_sequence_length();
  return config;
}

}  // namespace penstock::cli
