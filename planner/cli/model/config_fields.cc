#include "planner/cli/model/config_fields.h"

#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

namespace penstock::cli {

bool ConfigFields::Has(const std::string& field) const {
  const auto found = json_.find(field);
  return found != json_.end() && !found->is_null();
}

const nlohmann::json* ConfigFields::Look(const std::string& field) {
  read_.insert(field);
  return Has(field) ? &json_[field] : nullptr;
}

void ConfigFields::Refuse(const std::string& field, const std::string& why) {
  if (!status_.ok()) return;
  status_ = absl::InvalidArgumentError(absl::StrCat(name_, name_.empty() ? "" : ": ", field, ": ", why));
}

template <typename Value>
Value ConfigFields::Missing(const std::string& field, const std::optional<Value>& fallback) {
  if (!fallback.has_value()) Refuse(field, "is missing");
  return fallback.value_or(Value());
}

uint32_t ConfigFields::Count(const std::string& field, std::optional<uint32_t> fallback) {
  const nlohmann::json* const value = Look(field);
  if (value == nullptr) return Missing(field, fallback);
  const bool count = value->is_number_unsigned() && value->get<uint64_t>() > 0 &&
                     value->get<uint64_t>() <= std::numeric_limits<uint32_t>::max();
  if (count) return value->get<uint32_t>();
  Refuse(field, absl::StrCat(value->dump(), "; must be a whole number of at least 1"));
  return 1;
}

double ConfigFields::Number(const std::string& field, std::optional<double> fallback) {
  const nlohmann::json* const value = Look(field);
  if (value == nullptr) return Missing(field, fallback);
  if (value->is_number() && std::isfinite(value->get<double>()) && value->get<double>() >= 0)
    return value->get<double>();
  Refuse(field, absl::StrCat(value->dump(), "; must be a number of at least 0"));
  return 0;
}

bool ConfigFields::Flag(const std::string& field, std::optional<bool> fallback) {
  const nlohmann::json* const value = Look(field);
  if (value == nullptr) return Missing(field, fallback);
  if (value->is_boolean()) return value->get<bool>();
  Refuse(field, absl::StrCat(value->dump(), "; must be true or false"));
  return false;
}

std::string ConfigFields::Text(const std::string& field, std::optional<std::string> fallback) {
  const nlohmann::json* const value = Look(field);
  if (value == nullptr) return Missing(field, fallback);
  if (value->is_string()) return value->get<std::string>();
  Refuse(field, absl::StrCat(value->dump(), "; must be text"));
  return "";
}

nlohmann::json ConfigFields::List(const std::string& field) {
  const nlohmann::json* const value = Look(field);
  if (value == nullptr) return nlohmann::json::array();
  if (value->is_array()) return *value;
  Refuse(field, absl::StrCat(value->dump(), "; must be a list"));
  return nlohmann::json::array();
}

const nlohmann::json* ConfigFields::Object(const std::string& field) {
  const nlohmann::json* const value = Look(field);
  if (value == nullptr || value->is_object()) return value;
  Refuse(field, absl::StrCat(value->dump(), "; must be an object"));
  return nullptr;
}

void ConfigFields::Require(const std::string& field, const nlohmann::json& value) {
  const nlohmann::json* const found = Look(field);
  if (found == nullptr || *found == value) return;
  Refuse(field, absl::StrCat(found->dump(), "; Penstock trains such models with ", value.dump(), " alone"));
}

void ConfigFields::RequireAll(const std::string& field, const nlohmann::json& value) {
  for (const nlohmann::json& element : List(field)) {
    if (element == value) continue;
    Refuse(field, absl::StrCat("has ", element.dump(), "; Penstock trains such models with ", value.dump(),
                               " alone"));
  }
}

void ConfigFields::MeansNothing(std::initializer_list<const char*> fields) {
  read_.insert(fields.begin(), fields.end());
}

absl::Status ConfigFields::Finish() {
  for (const auto& [field, value] : json_.items()) {
    if (read_.contains(field)) continue;
    Refuse(field, absl::StrCat(value.dump(),
                               "; it is not known what this changes; remove it if it changes "
                               "nothing that is computed"));
  }
  return status_;
}

}  // namespace penstock::cli
