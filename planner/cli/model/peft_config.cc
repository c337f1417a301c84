#include "planner/cli/model/peft_config.h"

#include <cmath>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/status/status_macros.h"
#include "planner/cli/model/hugging_face_config.h"

namespace penstock::cli {
namespace {

using Json = nlohmann::ordered_json;

double AlphaOrRank(const v1::Adapters& adapters) {
  return adapters.alpha() != 0 ? adapters.alpha() : adapters.rank();
}

// Fields that change what is computed, and what they are where they change nothing.
const std::vector<std::pair<const char*, Json>>& PlainFields() {
  static const auto* fields =
      new std::vector<std::pair<const char*, Json>>{{"use_dora", false},
                                                    {"bias", "none"},
                                                    {"modules_to_save", nullptr},
                                                    {"layers_to_transform", nullptr},
                                                    {"lora_bias", false},
                                                    {"trainable_token_indices", nullptr},
                                                    {"target_parameters", nullptr},
                                                    {"layer_replication", nullptr},
                                                    {"alora_invocation_tokens", nullptr}};
  return *fields;
}

bool IsEmpty(const Json& value) { return value.is_null() || (value.is_structured() && value.empty()); }

absl::Status Refused(const std::string& file, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("'", file, "': ", what, "; merge it with PEFT (merge_and_unload), and import the model"));
}

template <typename Number>
absl::StatusOr<std::map<std::string, Number>> ReadPattern(const std::string& file, const Json& config,
                                                          const char* field) {
  std::map<std::string, Number> pattern;
  if (!config.contains(field) || IsEmpty(config[field])) return pattern;
  for (const auto& [name, value] : config[field].items()) {
    if (!value.is_number()) return Refused(file, absl::StrCat(field, ": ", value.dump(), " is no number"));
    pattern[name] = value.template get<Number>();
  }
  return pattern;
}

template <typename Number>
Number OfModule(const std::map<std::string, Number>& pattern, const std::string& module, Number usual) {
  for (const auto& [name, value] : pattern)
    if (module == name || absl::EndsWith(module, "." + name)) return value;
  return usual;
}

}  // namespace

uint32_t PeftConfig::RankOf(const std::string& module) const { return OfModule(rank_pattern, module, rank); }
double PeftConfig::AlphaOf(const std::string& module) const { return OfModule(alpha_pattern, module, alpha); }

Json PeftConfigOf(const v1::ModelSpec& model, const std::string& family,
                  const std::vector<AdapterModule>& modules) {
  const v1::Adapters& adapters = model.adapters();
  std::set<std::string> targets;
  Json ranks = Json::object();
  Json alphas = Json::object();
  for (const AdapterModule& module : modules) {
    targets.insert(TargetOf(module));
    const size_t parts = module.parts.size();
    if (parts == 1) continue;
    ranks[TargetOf(module)] = parts * adapters.rank();
    const auto times = static_cast<double>(parts);
    alphas[TargetOf(module)] =
        AlphaOrRank(adapters) * (adapters.rank_stabilised() ? std::sqrt(times) : times);
  }
  return {{"peft_type", "LORA"},
          {"task_type", family == kT5 ? "SEQ_2_SEQ_LM" : "CAUSAL_LM"},
          {"base_model_name_or_path", nullptr},
          {"r", adapters.rank()},
          {"lora_alpha", AlphaOrRank(adapters)},
          {"use_rslora", adapters.rank_stabilised()},
          {"target_modules", targets},
          {"rank_pattern", ranks},
          {"alpha_pattern", alphas},
          {"lora_dropout", 0.0},
          {"bias", "none"},
          // GPT-2's matrices are [inputs, outputs].
          {"fan_in_fan_out", family == kGpt2},
          {"modules_to_save", nullptr},
          {"inference_mode", true}};
}

absl::StatusOr<PeftConfig> ReadPeftConfig(const std::string& folder) {
  const std::string file = absl::StrCat(folder, "/", kPeftConfig);
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text, ReadFile(file));
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::InvalidArgumentError(absl::StrCat("'", file, "' is no JSON object"));
  if (json.value("peft_type", Json()) != "LORA")
    return Refused(file,
                   absl::StrCat("peft_type is ", json.value("peft_type", Json()).dump(), ", not \"LORA\""));
  for (const auto& [field, plain] : PlainFields()) {
    if (!json.contains(field) || json[field] == plain || IsEmpty(json[field])) continue;
    return Refused(file, absl::StrCat(field, " is ", json[field].dump(), ", which Penstock does not have"));
  }
  if (!json.contains("r") || !json["r"].is_number_unsigned() || json["r"] == 0)
    return Refused(file, "r is no rank");
  if (!json.contains("lora_alpha") || !json["lora_alpha"].is_number() ||
      json["lora_alpha"].get<double>() <= 0)
    return Refused(file, "lora_alpha is no number above 0");
  PeftConfig config;
  config.rank = json["r"].get<uint32_t>();
  config.alpha = json["lora_alpha"].get<double>();
  config.rank_stabilised = json.contains("use_rslora") && json["use_rslora"] == true;
  PENSTOCK_ASSIGN_OR_RETURN(config.rank_pattern, ReadPattern<uint32_t>(file, json, "rank_pattern"));
  PENSTOCK_ASSIGN_OR_RETURN(config.alpha_pattern, ReadPattern<double>(file, json, "alpha_pattern"));
  return config;
}

}  // namespace penstock::cli
