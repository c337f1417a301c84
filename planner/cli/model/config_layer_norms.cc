// Families that have layer norms with biases, where a Llama has RMS norms.
#include "planner/cli/model/config_families.h"
#include "planner/cli/model/config_like_a_llama.h"
#include "planner/cli/model/config_windows.h"

namespace penstock::cli {

void ReadStableLm(ConfigFields& fields, v1::ModelSpec& model) {
  ReadLikeALlama(fields, model,
                 {.norm = v1::NORM_LAYER,
                  .epsilon_field = "layer_norm_eps",
                  .epsilon = 1e-5,
                  .rotary = {.usual_part = 0.25}});
  const bool biases = fields.Flag("use_qkv_bias", false);
  model.set_attention_biases(biases ? v1::BIASES_QUERY_KEY_VALUE : v1::BIASES_NONE);
  fields.Require("qk_layernorm", false);
  fields.Require("use_parallel_residual", false);
}

void ReadStarcoder2(ConfigFields& fields, v1::ModelSpec& model) {
  ReadLikeALlama(fields, model,
                 {.feed_forward = v1::FEED_FORWARD_GELU,
                  .activation = "gelu_pytorch_tanh",
                  .norm = v1::NORM_LAYER,
                  .epsilon_field = "norm_epsilon",
                  .epsilon = 1e-5});
  const v1::Biases biases = AllOrNone(fields.Flag("use_bias", true));
  model.set_attention_biases(biases);
  model.set_feed_forward_biases(biases);
  model.set_tied_head(fields.Flag("tie_word_embeddings", true));
  model.set_attention_window(ReadWindow(fields, 0));
  // Of the first weights' own code.
  fields.Require("mlp_type", "default");
  fields.Require("norm_type", "layer_norm");
}

}  // namespace penstock::cli
