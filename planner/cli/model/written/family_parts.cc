#include "planner/cli/model/written/family_parts.h"

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace penstock::cli {

absl::Status NotInFamily(absl::string_view family, absl::string_view field, absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("model.", field, ": ", why, ", which no ", family, " of Hugging Face has"));
}

absl::Status CheckParts(const v1::ModelSpec& model, const std::string& family, const FamilyParts& has) {
  if (!has.multipliers && model.has_multipliers()) return NotInFamily(family, "multipliers", "it has some");
  if (!has.positionless_layers && model.positionless_interval() > 0)
    return NotInFamily(family, "positionless_interval", "some layers have no positions");
  if (!has.window && model.attention_window() > 0)
    return NotInFamily(family, "attention_window", "layers have a window");
  if (!has.windowless_layers && model.windowless_interval() > 0)
    return NotInFamily(family, "windowless_interval", "some layers have no window");
  if (!has.windowless_layers && model.windowless_layers_size() > 0)
    return NotInFamily(family, "windowless_layers", "some layers have no window");
  if (!has.window_theta && model.window_rotary_theta() > 0)
    return NotInFamily(family, "window_rotary_theta", "layers with a window turn by another theta");
  if (!has.score_cap && model.score_cap() > 0) return NotInFamily(family, "score_cap", "scores have one");
  if (!has.logit_cap && model.logit_cap() > 0) return NotInFamily(family, "logit_cap", "logits have one");
  if (!has.part_of_heads_turns && model.rotary().width() > 0)
    return NotInFamily(family, "rotary.width", "a part of a head turns alone");
  if (!has.experts && model.experts() > 0)
    return NotInFamily(family, "experts", "its feed-forward parts are not dense");
  if (!has.dense_layers && model.dense_layers_size() > 0)
    return NotInFamily(family, "dense_layers", "some layers have no experts");
  if (!has.shared_expert && model.shared_expert_ffn() > 0)
    return NotInFamily(family, "shared_expert_ffn", "all tokens share an expert");
  if (!has.clip && model.query_key_value_clip() > 0)
    return NotInFamily(family, "query_key_value_clip", "queries, keys and values are clipped");
  if (!has.head_norms && model.head_norms())
    return NotInFamily(family, "head_norms", "queries and keys are normalised");
  const bool behind = model.norm_placement() > v1::NORM_PLACEMENT_BEFORE;
  if (has.norms_behind != behind) return NotInFamily(family, "norm_placement", "norms stand elsewhere");
  if (has.offset_norms != model.offset_norms())
    return NotInFamily(family, "offset_norms", "its norms multiply by something else");
  return absl::OkStatus();
}

uint32_t AttentionInner(const v1::ModelSpec& model) {
  return model.attention_inner() > 0 ? model.attention_inner() : model.hidden();
}

uint32_t HeadWidth(const v1::ModelSpec& model) { return AttentionInner(model) / model.heads(); }

double EpsilonOf(const v1::ModelSpec& model, double usual) {
  return model.norm_epsilon() > 0 ? model.norm_epsilon() : usual;
}

bool HasAllBiases(v1::Biases biases) { return biases == v1::BIASES_UNSPECIFIED || biases == v1::BIASES_ALL; }

}  // namespace penstock::cli
