// Values of an analytic profile by the path of their keys. All errors are INVALID_ARGUMENT and name the path.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace penstock::core {

using JsonPath = std::vector<std::string>;

absl::StatusOr<double> NumberAt(const nlohmann::json& root, const JsonPath& path);
// A whole number from 1 to 2^31 - 1.
absl::StatusOr<uint32_t> CountAt(const nlohmann::json& root, const JsonPath& path);
// All numbers of an array, each as CountAt.
absl::StatusOr<std::vector<uint32_t>> CountsAt(const nlohmann::json& root, const JsonPath& path);
absl::StatusOr<std::string> TextAt(const nlohmann::json& root, const JsonPath& path);
// Coefficients of closed_form.KEY (closed_form.h explains patterns).
absl::StatusOr<std::vector<double>> FormulaAt(const nlohmann::json& root, const std::string& key,
                                              absl::string_view pattern);
// All numbers of nested arrays, outermost first; null becomes NaN.
absl::StatusOr<std::vector<double>> ValuesAt(const nlohmann::json& root, const JsonPath& path);

}  // namespace penstock::core
