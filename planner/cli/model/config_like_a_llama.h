// What Llama and those that came after it have in the same fields of config.json. Private to this folder.
#pragma once

#include "penstock/v1/job.pb.h"
#include "planner/cli/model/config_fields.h"
#include "planner/cli/model/config_rotary.h"

namespace penstock::cli {

// How a family differs from a Llama in what ReadLikeALlama reads.
struct LlamaDifferences {
  v1::FeedForward feed_forward = v1::FEED_FORWARD_GATED_SILU;
  const char* activation_field = "hidden_act";
  const char* activation = "silu";
  v1::Norm norm = v1::NORM_RMS;
  const char* epsilon_field = "rms_norm_eps";
  double epsilon = 1e-6;
  RotaryRules rotary = {};
  // Layers with a window turn otherwise; null: they do not.
  const WindowRotaryRules* rotary_of_windows = nullptr;
};

v1::Biases AllOrNone(bool all);

// Architecture, positions, norm and feed-forward part.
void SetLlamaParts(v1::ModelSpec& model);

// The fields of a Llama without those of its biases. Sizes have no defaults here: those of transformers'
// classes differ from family to family and version to version, and transformers always writes them.
void ReadLikeALlama(ConfigFields& fields, v1::ModelSpec& model, const LlamaDifferences& differences = {});

}  // namespace penstock::cli
