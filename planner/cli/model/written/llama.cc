#include "common/status/status_macros.h"
#include "planner/cli/model/family_names.h"
#include "planner/cli/model/written/like_a_llama.h"
#include "planner/cli/model/written/written_configs.h"

namespace penstock::cli {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

absl::StatusOr<Json> LlamaConfig(const v1::ModelSpec& model) {
  PENSTOCK_ASSIGN_OR_RETURN(Json config, LikeALlama(model, kLlama, "LlamaForCausalLM"));
  config["attention_bias"] = HasAllBiases(model.attention_biases());
  config["mlp_bias"] = HasAllBiases(model.feed_forward_biases());
  return config;
}

}  // namespace penstock::cli
