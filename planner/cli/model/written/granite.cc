#include <cmath>

#include "common/status/status_macros.h"
#include "planner/cli/model/family_names.h"
#include "planner/cli/model/written/like_a_llama.h"
#include "planner/cli/model/written/written_configs.h"

namespace penstock::cli {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

absl::StatusOr<Json> GraniteConfig(const v1::ModelSpec& model) {
  PENSTOCK_ASSIGN_OR_RETURN(Json config,
                            LikeALlama(model, kGranite, "GraniteForCausalLM", {.multipliers = true}));
  const v1::Multipliers& multipliers = model.multipliers();
  const auto or_usual = [](double value, double usual) { return value > 0 ? value : usual; };
  config["attention_bias"] = HasAllBiases(model.attention_biases());
  config["mlp_bias"] = HasAllBiases(model.feed_forward_biases());
  config["embedding_multiplier"] = or_usual(multipliers.embedding(), 1);
  config["residual_multiplier"] = or_usual(multipliers.residual(), 1);
  config["attention_multiplier"] = or_usual(multipliers.attention(), 1 / std::sqrt(HeadWidth(model)));
  config["logits_scaling"] = or_usual(multipliers.logits(), 1);
  return config;
}

}  // namespace penstock::cli
