#include "planner/cli/model/config_rotary.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"

namespace penstock::cli {
namespace {

struct Scaling {
  v1::RotaryScaling scaling = v1::ROTARY_SCALING_UNSPECIFIED;
  bool known = true;
};

Scaling ScalingOf(const std::string& type, const RotaryRules& rules) {
  if (type == "default") return {};
  if (type == "longrope" || (rules.like_phi3 && type == "su")) return {v1::ROTARY_SCALING_LONGROPE};
  // transformers makes its Phi-3 a longrope of it, for which it has no factors.
  if (rules.like_phi3) return {.known = false};
  if (type == "linear") return {v1::ROTARY_SCALING_LINEAR};
  if (type == "llama3") return {v1::ROTARY_SCALING_LLAMA3};
  if (type == "yarn") return {v1::ROTARY_SCALING_YARN};
  return {.known = false};
}

// What a scaling is read with.
struct Lengths {
  uint32_t longest = 0;
  // Of a field beside the scaling, which counts more than the one in it.
  std::optional<uint32_t> original;
};

uint32_t OriginalLength(ConfigFields& parts, const Lengths& lengths) {
  const uint32_t inside = parts.Count("original_max_position_embeddings", lengths.longest);
  return lengths.original.value_or(inside);
}

void ReadLlama3(ConfigFields& parts, const Lengths& lengths, v1::RotaryPosition& rotary) {
  rotary.set_factor(parts.Number("factor"));
  rotary.set_low_frequency_factor(parts.Number("low_freq_factor"));
  rotary.set_high_frequency_factor(parts.Number("high_freq_factor"));
  rotary.set_original_max_sequence_length(OriginalLength(parts, lengths));
}

double RatioOf(const Lengths& lengths, uint32_t original) {
  return static_cast<double>(lengths.longest) / static_cast<double>(original);
}

// As transformers computes it where it is not given.
double YarnAttentionFactor(ConfigFields& parts, double factor) {
  const double first = parts.Number("mscale", 0);
  const double second = parts.Number("mscale_all_dim", 0);
  const auto scale = [&](double times) { return factor <= 1 ? 1 : 0.1 * times * std::log(factor) + 1; };
  const double usual = first > 0 && second > 0 ? scale(first) / scale(second) : scale(1);
  return parts.Number("attention_factor", usual);
}

void ReadYarn(ConfigFields& parts, const Lengths& lengths, v1::RotaryPosition& rotary) {
  const uint32_t original = OriginalLength(parts, lengths);
  const double factor = parts.Number("factor", RatioOf(lengths, original));
  const auto or_usual = [](double value, double usual) { return value > 0 ? value : usual; };
  rotary.set_original_max_sequence_length(original);
  rotary.set_factor(factor);
  rotary.set_beta_fast(or_usual(parts.Number("beta_fast", 0), 32));
  rotary.set_beta_slow(or_usual(parts.Number("beta_slow", 0), 1));
  rotary.set_truncated(parts.Flag("truncate", true));
  rotary.set_attention_factor(YarnAttentionFactor(parts, factor));
}

void ReadFactors(ConfigFields& parts, const std::string& field,
                 google::protobuf::RepeatedField<double>& factors) {
  for (const nlohmann::json& factor : parts.List(field)) {
    if (factor.is_number()) {
      factors.Add(factor.get<double>());
    } else {
      parts.Refuse(field, absl::StrCat("has ", factor.dump(), "; must be numbers"));
    }
  }
}

void ReadLongRope(ConfigFields& parts, const Lengths& lengths, v1::RotaryPosition& rotary) {
  const uint32_t original = OriginalLength(parts, lengths);
  const double factor = parts.Number("factor", RatioOf(lengths, original));
  const double usual = factor <= 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(original));
  rotary.set_original_max_sequence_length(original);
  // Of the attention factor alone, which transformers takes from it.
  rotary.set_factor(std::max(1.0, factor));
  rotary.set_attention_factor(parts.Number("attention_factor", usual));
  ReadFactors(parts, "short_factor", *rotary.mutable_short_factors());
  ReadFactors(parts, "long_factor", *rotary.mutable_long_factors());
}

// The elements of a head that turn.
void SetTurningPart(double part, v1::ModelSpec& model) {
  const uint32_t inner = model.attention_inner() > 0 ? model.attention_inner() : model.hidden();
  const double width = static_cast<double>(inner / model.heads()) * part;
  model.mutable_rotary()->set_width(part == 1 ? 0 : static_cast<uint32_t>(width));
}

void ReadTurningPart(ConfigFields& fields, const RotaryRules& rules, v1::ModelSpec& model) {
  if (rules.usual_part == 0) return fields.Require("partial_rotary_factor", 1.0);
  if (!fields.Has("partial_rotary_factor")) return fields.MeansNothing({"partial_rotary_factor"});
  const double part = fields.Number("partial_rotary_factor");
  if (part > 0 && part <= 1) return SetTurningPart(part, model);
  fields.Refuse("partial_rotary_factor", absl::StrCat(part, "; must be above 0 and at most 1"));
}

// `rope_parameters` of transformers 5, `rope_scaling` before it. Begins anew.
void ReadScaling(const std::string& field, const nlohmann::json& object, const RotaryRules& rules,
                 const Lengths& lengths, ConfigFields& fields, v1::ModelSpec& model) {
  ConfigFields parts("", object);
  v1::RotaryPosition& rotary = *model.mutable_rotary();
  const uint32_t width = rotary.width();
  rotary.Clear();
  rotary.set_width(width);
  // An old name of the same.
  const std::string old_type = parts.Text("type", "default");
  const std::string type = parts.Text("rope_type", old_type);
  const Scaling scaling = ScalingOf(type, rules);
  if (!scaling.known) {
    fields.Refuse(field,
                  absl::StrCat("rope_type: '", type, "'; known are default",
                               rules.like_phi3 ? " and longrope" : ", linear, llama3, longrope and yarn"));
  }
  rotary.set_theta(parts.Number("rope_theta", rules.theta));
  rotary.set_scaling(scaling.scaling);
  if (scaling.scaling == v1::ROTARY_SCALING_LINEAR) rotary.set_factor(parts.Number("factor"));
  if (scaling.scaling == v1::ROTARY_SCALING_LLAMA3) ReadLlama3(parts, lengths, rotary);
  if (scaling.scaling == v1::ROTARY_SCALING_YARN) ReadYarn(parts, lengths, rotary);
  if (scaling.scaling == v1::ROTARY_SCALING_LONGROPE) ReadLongRope(parts, lengths, rotary);
  // transformers writes it beside any scaling.
  if (scaling.scaling == v1::ROTARY_SCALING_UNSPECIFIED)
    parts.MeansNothing({"original_max_position_embeddings"});
  ReadTurningPart(parts, rules, model);
  const absl::Status status = parts.Finish();
  if (!status.ok()) fields.Refuse(field, std::string(status.message()));
}

Lengths LengthsOf(ConfigFields& fields, const v1::ModelSpec& model) {
  Lengths lengths = {.longest = model.max_sequence_length(), .original = std::nullopt};
  constexpr char kField[] = "original_max_position_embeddings";
  fields.MeansNothing({kField});
  if (fields.Has(kField)) lengths.original = fields.Count(kField);
  return lengths;
}

// Whether an object has the positions of layers with and without a window apart.
bool IsByLayerType(const nlohmann::json& object) {
  return object.contains("full_attention") || object.contains("sliding_attention");
}

// Of one kind of layers. A missing one is a default.
void ReadByLayerType(const nlohmann::json& object, const WindowRotaryRules& rules, const Lengths& lengths,
                     ConfigFields& fields, v1::ModelSpec& model) {
  constexpr char kField[] = "rope_parameters";
  ConfigFields kinds("", object);
  const nlohmann::json none = nlohmann::json::object();
  const auto kind = [&](const char* name) {
    const nlohmann::json* const found = kinds.Object(name);
    return found == nullptr ? none : *found;
  };
  v1::ModelSpec windowed = model;
  ReadScaling(kField, kind("sliding_attention"), {.theta = rules.window_theta}, lengths, fields, windowed);
  if (windowed.rotary().scaling() != v1::ROTARY_SCALING_UNSPECIFIED)
    fields.Refuse(kField, "sliding_attention: has a scaling; Penstock knows such layers without one");
  ReadScaling(kField, kind("full_attention"), {.theta = rules.theta}, lengths, fields, model);
  model.set_window_rotary_theta(windowed.rotary().theta());
  const absl::Status status = kinds.Finish();
  if (!status.ok()) fields.Refuse(kField, std::string(status.message()));
}

}  // namespace

void ReadRotary(ConfigFields& fields, const RotaryRules& rules, v1::ModelSpec& model) {
  RotaryRules own = rules;
  own.theta = fields.Number("rope_theta", rules.theta);
  model.mutable_rotary()->set_theta(own.theta);
  if (rules.usual_part > 0) SetTurningPart(rules.usual_part, model);
  ReadTurningPart(fields, rules, model);
  const Lengths lengths = LengthsOf(fields, model);
  for (const char* field : {"rope_scaling", "rope_parameters"}) {
    const nlohmann::json* const object = fields.Object(field);
    if (object != nullptr) ReadScaling(field, *object, own, lengths, fields, model);
  }
}

void ReadRotaryOfWindows(ConfigFields& fields, const WindowRotaryRules& rules, v1::ModelSpec& model) {
  const nlohmann::json* const object =
      fields.Has("rope_parameters") ? fields.Object("rope_parameters") : nullptr;
  if (object != nullptr && IsByLayerType(*object)) {
    ReadByLayerType(*object, rules, LengthsOf(fields, model), fields, model);
    fields.MeansNothing({"rope_theta", "rope_local_base_freq"});
    fields.Require("rope_scaling", nullptr);
    return;
  }
  if (object != nullptr) {
    fields.Refuse("rope_parameters",
                  "must have full_attention and sliding_attention, as transformers 5 writes them");
  }
  ReadRotary(fields, {.theta = rules.theta}, model);
  if (rules.old_window_field != nullptr)
    return model.set_window_rotary_theta(fields.Number(rules.old_window_field, rules.window_theta));
  model.set_window_rotary_theta(rules.window_theta);
  if (model.rotary().theta() == rules.window_theta) return;
  fields.Refuse("rope_theta",
                absl::StrCat(model.rotary().theta(), "; transformers 5 turns layers with a window by ",
                             rules.window_theta,
                             " whatever it says: write rope_parameters with "
                             "full_attention and sliding_attention"));
}

}  // namespace penstock::cli
