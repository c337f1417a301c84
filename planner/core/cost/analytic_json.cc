#include "planner/core/cost/analytic_json.h"

#include <cmath>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "planner/core/cost/closed_form.h"

namespace penstock::core {
namespace {

using Json = nlohmann::json;

absl::Status Missing(absl::string_view key, absl::string_view type) {
  return absl::InvalidArgumentError(absl::StrCat("'", key, "' is missing or not ", type));
}

// The value at a path of keys, or null.
const Json& NodeAt(const Json& root, const JsonPath& path) {
  static const Json& none = *new Json();
  const Json* node = &root;
  for (const std::string& key : path) {
    if (!node->is_object() || !node->contains(key)) return none;
    node = &(*node)[key];
  }
  return *node;
}

std::string PathName(const JsonPath& path) {
  std::string name;
  for (const std::string& key : path) absl::StrAppend(&name, name.empty() ? "" : ".", key);
  return name;
}

absl::StatusOr<uint32_t> Count(double number, const JsonPath& path) {
  constexpr double kMost = std::numeric_limits<int32_t>::max();
  if (number >= 1 && number <= kMost && number == std::floor(number)) return static_cast<uint32_t>(number);
  return absl::InvalidArgumentError(
      absl::StrCat(PathName(path), ": ", number, "; must be a whole number from 1 to 2147483647"));
}

// Flattens nested arrays of numbers and nulls.
absl::Status Flatten(const Json& node, std::vector<double>* values) {
  if (node.is_array()) {
    for (const Json& child : node) PENSTOCK_RETURN_IF_ERROR(Flatten(child, values));
    return absl::OkStatus();
  }
  if (!node.is_number() && !node.is_null()) return absl::InvalidArgumentError("expected numbers or null");
  values->push_back(node.is_null() ? std::numeric_limits<double>::quiet_NaN() : node.get<double>());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<double> NumberAt(const Json& root, const JsonPath& path) {
  const Json& node = NodeAt(root, path);
  if (!node.is_number()) return Missing(PathName(path), "a number");
  return node.get<double>();
}

absl::StatusOr<uint32_t> CountAt(const Json& root, const JsonPath& path) {
  PENSTOCK_ASSIGN_OR_RETURN(const double number, NumberAt(root, path));
  return Count(number, path);
}

absl::StatusOr<std::vector<uint32_t>> CountsAt(const Json& root, const JsonPath& path) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<double> numbers, ValuesAt(root, path));
  std::vector<uint32_t> counts;
  for (const double number : numbers) {
    PENSTOCK_ASSIGN_OR_RETURN(counts.emplace_back(), Count(number, path));
  }
  return counts;
}

absl::StatusOr<std::string> TextAt(const Json& root, const JsonPath& path) {
  const Json& node = NodeAt(root, path);
  if (!node.is_string()) return Missing(PathName(path), "a text");
  return node.get<std::string>();
}

absl::StatusOr<std::vector<double>> FormulaAt(const Json& root, const std::string& key,
                                              absl::string_view pattern) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text, TextAt(root, {"closed_form", key}));
  absl::StatusOr<std::vector<double>> numbers = MatchFormula(pattern, text);
  if (!numbers.ok()) return AnnotateError(numbers.status(), absl::StrCat("closed_form.", key));
  return numbers;
}

absl::StatusOr<std::vector<double>> ValuesAt(const Json& root, const JsonPath& path) {
  const Json& node = NodeAt(root, path);
  if (!node.is_array()) return Missing(PathName(path), "an array");
  std::vector<double> values;
  if (const absl::Status status = Flatten(node, &values); !status.ok())
    return AnnotateError(status, PathName(path));
  return values;
}

}  // namespace penstock::core
