#include "planner/cli/model/written/like_a_llama.h"

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace penstock::cli {
namespace {

using Json = nlohmann::ordered_json;

Json ListOfDoubles(const google::protobuf::RepeatedField<double>& values) {
  Json list = Json::array();
  for (const double value : values) list.push_back(value);
  return list;
}

void AddYarn(const v1::RotaryPosition& rotary, Json& json) {
  json["rope_type"] = "yarn";
  json["factor"] = rotary.factor();
  json["original_max_position_embeddings"] = rotary.original_max_sequence_length();
  json["beta_fast"] = rotary.beta_fast();
  json["beta_slow"] = rotary.beta_slow();
  json["truncate"] = rotary.truncated();
  json["attention_factor"] = rotary.attention_factor();
}

void AddLongRope(const v1::RotaryPosition& rotary, Json& json) {
  json["rope_type"] = "longrope";
  json["factor"] = rotary.factor();
  json["original_max_position_embeddings"] = rotary.original_max_sequence_length();
  json["attention_factor"] = rotary.attention_factor();
  json["short_factor"] = ListOfDoubles(rotary.short_factors());
  json["long_factor"] = ListOfDoubles(rotary.long_factors());
}

}  // namespace

Json RopeParameters(const v1::RotaryPosition& rotary) {
  Json json = {{"rope_type", "default"}, {"rope_theta", rotary.theta() > 0 ? rotary.theta() : 10000.0}};
  if (rotary.scaling() == v1::ROTARY_SCALING_UNSPECIFIED) return json;
  if (rotary.scaling() == v1::ROTARY_SCALING_YARN) AddYarn(rotary, json);
  if (rotary.scaling() == v1::ROTARY_SCALING_LONGROPE) AddLongRope(rotary, json);
  if (json["rope_type"] != "default") return json;
  json["rope_type"] = rotary.scaling() == v1::ROTARY_SCALING_LINEAR ? "linear" : "llama3";
  json["factor"] = rotary.factor();
  if (rotary.scaling() == v1::ROTARY_SCALING_LINEAR) return json;
  json["low_freq_factor"] = rotary.low_frequency_factor();
  json["high_freq_factor"] = rotary.high_frequency_factor();
  json["original_max_position_embeddings"] = rotary.original_max_sequence_length();
  return json;
}

absl::StatusOr<Json> LikeALlama(const v1::ModelSpec& model, const std::string& family,
                                const std::string& architecture, const FamilyParts& has) {
  if (model.norm() != has.norm) return NotInFamily(family, "norm", v1::Norm_Name(model.norm()));
  if (model.feed_forward() != has.feed_forward)
    return NotInFamily(family, "feed_forward", absl::StrCat("not ", v1::FeedForward_Name(has.feed_forward)));
  PENSTOCK_RETURN_IF_ERROR(CheckParts(model, family, has));
  const Json rope = RopeParameters(model.rotary());
  Json config = {
      {"architectures", Json::array({architecture})},
      {"model_type", family},
      {"vocab_size", model.vocab()},
      {"hidden_size", model.hidden()},
      {"intermediate_size", model.ffn()},
      {"num_hidden_layers", model.layers()},
      {"num_attention_heads", model.heads()},
      {"num_key_value_heads", model.key_value_heads() > 0 ? model.key_value_heads() : model.heads()},
      {"head_dim", HeadWidth(model)},
      {"max_position_embeddings", model.max_sequence_length()},
      {"hidden_act", "silu"},
      {"rms_norm_eps", EpsilonOf(model, has.norm == v1::NORM_LAYER ? 1e-5 : 1e-6)},
      {"tie_word_embeddings", model.tied_head()},
      // For transformers 5, and for those before it.
      {"rope_parameters", rope},
      {"rope_theta", rope["rope_theta"]}};
  if (rope["rope_type"] != "default") config["rope_scaling"] = rope;
  return config;
}

void AddExperts(const v1::ModelSpec& model, Json& config) {
  config["num_experts"] = model.experts();
  config["num_experts_per_tok"] = model.experts_per_token();
  config["norm_topk_prob"] = model.normalised_experts();
}

}  // namespace penstock::cli
