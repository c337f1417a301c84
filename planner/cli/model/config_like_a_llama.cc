#include "planner/cli/model/config_like_a_llama.h"

namespace penstock::cli {

v1::Biases AllOrNone(bool all) { return all ? v1::BIASES_ALL : v1::BIASES_NONE; }

void SetLlamaParts(v1::ModelSpec& model) {
  model.set_architecture(v1::ARCHITECTURE_GPT);
  model.set_position(v1::POSITION_ROTARY);
  model.set_norm(v1::NORM_RMS);
  model.set_feed_forward(v1::FEED_FORWARD_GATED_SILU);
}

void ReadLikeALlama(ConfigFields& fields, v1::ModelSpec& model, const LlamaDifferences& differences) {
  SetLlamaParts(model);
  model.set_norm(differences.norm);
  model.set_feed_forward(differences.feed_forward);
  model.set_vocab(fields.Count("vocab_size"));
  model.set_hidden(fields.Count("hidden_size"));
  model.set_ffn(fields.Count("intermediate_size"));
  model.set_layers(fields.Count("num_hidden_layers"));
  model.set_heads(fields.Count("num_attention_heads"));
  model.set_key_value_heads(fields.Count("num_key_value_heads"));
  model.set_attention_inner(model.heads() * fields.Count("head_dim", model.hidden() / model.heads()));
  model.set_max_sequence_length(fields.Count("max_position_embeddings"));
  model.set_norm_epsilon(fields.Number(differences.epsilon_field, differences.epsilon));
  model.set_tied_head(fields.Flag("tie_word_embeddings", false));
  model.set_feed_forward_biases(v1::BIASES_NONE);
  if (!fields.Has("rope_theta") && !fields.Has("rope_parameters")) fields.Refuse("rope_theta", "is missing");
  if (differences.rotary_of_windows != nullptr) {
    ReadRotaryOfWindows(fields, *differences.rotary_of_windows, model);
  } else {
    ReadRotary(fields, differences.rotary, model);
  }
  fields.Require(differences.activation_field, differences.activation);
}

}  // namespace penstock::cli
