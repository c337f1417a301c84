#include "planner/core/cost/profile_reader.h"

#include <google/protobuf/util/json_util.h>

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "planner/core/cost/analytic_profile.h"

namespace penstock::core {
namespace {

absl::StatusOr<v1::ProfileFile> ParseProtoForm(absl::string_view json) {
  v1::ProfileFile file;
  const auto status = google::protobuf::util::JsonStringToMessage({json.data(), json.size()}, &file);
  if (!status.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("not a penstock.v1.ProfileFile: ", status.ToString()));
  }
  if (!file.has_profile()) return absl::InvalidArgumentError("'profile' is missing");
  return file;
}

}  // namespace

absl::StatusOr<v1::ProfileFile> ParseProfile(absl::string_view json) {
  const auto root = nlohmann::json::parse(json.begin(), json.end(), nullptr, /*allow_exceptions=*/false);
  if (!root.is_object()) return absl::InvalidArgumentError("a profile is a JSON object; this is not one");
  if (root.contains("closed_form")) return ParseAnalyticProfile(root);
  if (root.contains("profile")) return ParseProtoForm(json);
  return absl::InvalidArgumentError(
      "neither a penstock.v1.ProfileFile (key 'profile') nor an analytic profile (key 'closed_form')");
}

}  // namespace penstock::core
