#include <map>
#include <string>

#include "common/status/status_macros.h"
#include "planner/cli/model/hugging_face_config.h"
#include "planner/cli/model/written/written_configs.h"

namespace penstock::cli {
namespace {

using Json = nlohmann::ordered_json;
using FamilyWriter = absl::StatusOr<Json> (*)(const v1::ModelSpec& model);

const std::map<std::string, FamilyWriter>& Writers() {
  static const auto* const kWriters = new std::map<std::string, FamilyWriter>{{kExaone4, Exaone4Config},
                                                                              {kGemma, GemmaConfig},
                                                                              {kGemma2, Gemma2Config},
                                                                              {kGemma3, Gemma3Config},
                                                                              {kGpt2, Gpt2Config},
                                                                              {kGranite, GraniteConfig},
                                                                              {kLlama, LlamaConfig},
                                                                              {kMinistral, MinistralConfig},
                                                                              {kMistral, MistralConfig},
                                                                              {kMixtral, MixtralConfig},
                                                                              {kOlmo2, Olmo2Config},
                                                                              {kOlmo3, Olmo3Config},
                                                                              {kOlmoe, OlmoeConfig},
                                                                              {kPhi3, Phi3Config},
                                                                              {kQwen2, Qwen2Config},
                                                                              {kQwen2Moe, Qwen2MoeConfig},
                                                                              {kQwen3, Qwen3Config},
                                                                              {kQwen3Moe, Qwen3MoeConfig},
                                                                              {kSmolLm3, SmolLm3Config},
                                                                              {kStableLm, StableLmConfig},
                                                                              {kStarcoder2, Starcoder2Config},
                                                                              {kT5, T5Config}};
  return *kWriters;
}

}  // namespace

const char* DataTypeName(v1::DataType type) {
  if (type == v1::DATA_TYPE_BFLOAT16) return "bfloat16";
  return type == v1::DATA_TYPE_FLOAT64 ? "float64" : "float32";
}

std::string FamilyOf(const v1::ModelSpec& model) {
  if (model.architecture() == v1::ARCHITECTURE_T5) return kT5;
  if (model.position() != v1::POSITION_ROTARY) return kGpt2;
  // Unspecified is LAYER, as of every GPT.
  if (model.norm() != v1::NORM_RMS)
    return model.feed_forward() == v1::FEED_FORWARD_GATED_SILU ? kStableLm : kStarcoder2;
  if (model.norm_placement() == v1::NORM_PLACEMENT_BOTH) return model.head_norms() ? kGemma3 : kGemma2;
  if (model.norm_placement() == v1::NORM_PLACEMENT_AFTER && model.head_norms()) return kExaone4;
  if (model.joint_head_norms() && model.experts() > 0 && model.norm_placement() != v1::NORM_PLACEMENT_AFTER)
    return kOlmoe;
  if (model.norm_placement() == v1::NORM_PLACEMENT_AFTER || model.joint_head_norms())
    return model.attention_window() > 0 ? kOlmo3 : kOlmo2;
  if (model.offset_norms()) return kGemma;
  if (model.has_multipliers()) return kGranite;
  if (model.positionless_interval() > 0) return kSmolLm3;
  if (model.shared_expert_ffn() > 0) return kQwen2Moe;
  if (model.experts() > 0) return model.head_norms() || !model.normalised_experts() ? kQwen3Moe : kMixtral;
  if (model.head_norms()) return kQwen3;
  if (model.attention_biases() == v1::BIASES_QUERY_KEY_VALUE) return kQwen2;
  if (model.rotary().width() > 0) return kPhi3;
  if (model.windowless_interval() > 0 || model.windowless_layers_size() > 0) return kMinistral;
  return model.attention_window() > 0 ? kMistral : kLlama;
}

absl::StatusOr<Json> ConfigOfModel(const v1::ModelSpec& model) {
  PENSTOCK_ASSIGN_OR_RETURN(Json config, Writers().at(FamilyOf(model))(model));
  // transformers 5 reads the first; older versions the second, and take float32 where it is missing.
  config["dtype"] = config["torch_dtype"] = DataTypeName(model.dtype());
  return config;
}

}  // namespace penstock::cli
