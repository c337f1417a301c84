#include "common/status/status_macros.h"
#include "planner/cli/model/family_names.h"
#include "planner/cli/model/written/family_parts.h"
#include "planner/cli/model/written/written_configs.h"

namespace penstock::cli {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

absl::StatusOr<Json> Gpt2Config(const v1::ModelSpec& model) {
  if (model.norm() == v1::NORM_RMS) return NotInFamily(kGpt2, "norm", "RMS");
  if (!HasAllBiases(model.attention_biases()))
    return NotInFamily(kGpt2, "attention_biases", "not all linear layers have a bias");
  if (!HasAllBiases(model.feed_forward_biases()))
    return NotInFamily(kGpt2, "feed_forward_biases", "not all linear layers have a bias");
  if (model.key_value_heads() > 0 && model.key_value_heads() != model.heads())
    return NotInFamily(kGpt2, "key_value_heads", "fewer than heads");
  if (model.joint_head_norms())
    return NotInFamily(kGpt2, "joint_head_norms", "queries and keys are normalised");
  PENSTOCK_RETURN_IF_ERROR(CheckParts(model, kGpt2, {}));
  if (AttentionInner(model) != model.hidden())
    return NotInFamily(kGpt2, "attention_inner", "differs from hidden");
  const bool relu = model.feed_forward() == v1::FEED_FORWARD_RELU;
  const bool gelu =
      model.feed_forward() == v1::FEED_FORWARD_GELU || model.feed_forward() == v1::FEED_FORWARD_UNSPECIFIED;
  if (!relu && !gelu) return NotInFamily(kGpt2, "feed_forward", "it is gated");
  return Json{{"architectures", {"GPT2LMHeadModel"}},
              {"model_type", kGpt2},
              {"vocab_size", model.vocab()},
              {"n_embd", model.hidden()},
              {"n_layer", model.layers()},
              {"n_head", model.heads()},
              {"n_inner", model.ffn()},
              {"n_positions", model.max_sequence_length()},
              {"activation_function", relu ? "relu" : "gelu_new"},
              {"layer_norm_epsilon", EpsilonOf(model, 1e-5)},
              {"tie_word_embeddings", model.tied_head()}};
}

}  // namespace penstock::cli
