#include <string>

#include "common/status/status_macros.h"
#include "planner/cli/model/family_names.h"
#include "planner/cli/model/written/family_parts.h"
#include "planner/cli/model/written/written_configs.h"

namespace penstock::cli {
namespace {

using Json = nlohmann::ordered_json;

absl::StatusOr<std::string> T5FeedForward(v1::FeedForward feed_forward) {
  switch (feed_forward) {
    case v1::FEED_FORWARD_UNSPECIFIED:
    case v1::FEED_FORWARD_RELU:
      return "relu";
    case v1::FEED_FORWARD_GATED_GELU:
      return "gated-gelu";
    case v1::FEED_FORWARD_GATED_SILU:
      return "gated-silu";
    default:
      return NotInFamily(kT5, "feed_forward", "GELU without a gate");
  }
}

}  // namespace

absl::StatusOr<Json> T5Config(const v1::ModelSpec& model) {
  if (model.norm() == v1::NORM_LAYER) return NotInFamily(kT5, "norm", "LAYER");
  if (!model.tied_embeddings())
    return NotInFamily(kT5, "tied_embeddings", "encoder and decoder have embeddings of their own");
  if (model.attention_biases() > v1::BIASES_NONE || model.feed_forward_biases() > v1::BIASES_NONE)
    return NotInFamily(kT5, "attention_biases and feed_forward_biases", "linear layers have a bias");
  PENSTOCK_ASSIGN_OR_RETURN(const std::string feed_forward, T5FeedForward(model.feed_forward()));
  const auto or_usual = [](uint32_t value, uint32_t usual) { return value > 0 ? value : usual; };
  Json config = {{"architectures", {"T5ForConditionalGeneration"}},
                 {"model_type", kT5},
                 {"vocab_size", model.vocab()},
                 {"d_model", model.hidden()},
                 {"d_kv", HeadWidth(model)},
                 {"d_ff", model.ffn()},
                 {"num_layers", model.encoder_layers()},
                 {"num_decoder_layers", model.decoder_layers()},
                 {"num_heads", model.heads()},
                 {"relative_attention_num_buckets", or_usual(model.relative_position_buckets(), 32)},
                 {"relative_attention_max_distance", or_usual(model.relative_position_max_distance(), 128)},
                 {"layer_norm_epsilon", EpsilonOf(model, 1e-6)},
                 {"feed_forward_proj", feed_forward},
                 {"is_encoder_decoder", true},
                 {"decoder_start_token_id", model.decoder_start_token()},
                 {"pad_token_id", model.decoder_start_token()},
                 {"tie_word_embeddings", model.tied_head()}};
  if (model.unscaled_head()) config["scale_decoder_outputs"] = false;
  return config;
}

}  // namespace penstock::cli
