// What only some families have, and refusals of models that have more.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "penstock/v1/job.pb.h"

namespace penstock::cli {

// What only some families have; the others refuse it by name.
struct FamilyParts {
  bool multipliers = false;
  bool positionless_layers = false;
  bool window = false;
  bool windowless_layers = false;
  bool window_theta = false;
  bool score_cap = false;
  bool logit_cap = false;
  bool part_of_heads_turns = false;
  bool experts = false;
  bool dense_layers = false;
  bool shared_expert = false;
  bool clip = false;
  bool head_norms = false;
  // And nothing but these.
  v1::FeedForward feed_forward = v1::FEED_FORWARD_GATED_SILU;
  v1::Norm norm = v1::NORM_RMS;
  bool norms_behind = false;
  bool offset_norms = false;
};

// INVALID_ARGUMENT, of a field of ModelSpec: "model.norm: LAYER, which no llama of Hugging Face has".
absl::Status NotInFamily(absl::string_view family, absl::string_view field, absl::string_view why);

// Possible errors: INVALID_ARGUMENT (the model has a part that the family has not: names the field).
absl::Status CheckParts(const v1::ModelSpec& model, const std::string& family, const FamilyParts& has);

uint32_t AttentionInner(const v1::ModelSpec& model);
uint32_t HeadWidth(const v1::ModelSpec& model);
double EpsilonOf(const v1::ModelSpec& model, double usual);
// Of a GPT, of which what is not said is all.
bool HasAllBiases(v1::Biases biases);

}  // namespace penstock::cli
