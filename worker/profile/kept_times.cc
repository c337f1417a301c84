#include "worker/profile/kept_times.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/status/status_macros.h"

namespace penstock::worker {
namespace {

using nlohmann::json;

// The first line of a file.
json HeadOf(const std::string& of, absl::Time begun) {
  return {{"of", of}, {"begun_unix", absl::ToUnixSeconds(begun)}};
}

bool IsOf(const json& head, const std::string& of, absl::Time now) {
  if (!head.is_object() || !head.contains("of") || !head.contains("begun_unix")) return false;
  if (head["of"] != of || !head["begun_unix"].is_number_integer()) return false;
  const absl::Duration age = now - absl::FromUnixSeconds(head["begun_unix"].get<int64_t>());
  return age >= absl::ZeroDuration() && age <= KeptTimes::kMostAge;
}

bool IsWhole(const json& line) {
  if (!line.is_object() || !line.contains("what") || !line.contains("values") || !line.contains("spent_ns"))
    return false;
  const json& values = line["values"];
  return line["what"].is_string() && line["spent_ns"].is_number() && values.is_array() &&
         std::ranges::all_of(values, [](const json& value) { return value.is_number(); });
}

// Lines behind the first one, up to one that is not whole.
std::map<std::string, KeptFigures> Figures(std::istream& lines) {
  std::map<std::string, KeptFigures> found;
  for (std::string text; std::getline(lines, text);) {
    const json line = json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!IsWhole(line)) break;
    found[line["what"]] = {.values = line["values"], .spent_ns = line["spent_ns"]};
  }
  return found;
}

std::string LineOf(const std::string& what, const KeptFigures& figures) {
  return json({{"what", what}, {"values", figures.values}, {"spent_ns", figures.spent_ns}}).dump() + "\n";
}

}  // namespace

absl::StatusOr<KeptTimes> KeptTimes::Open(const std::string& path, const std::string& of, absl::Time now) {
  KeptTimes kept;
  kept.path_ = path;
  std::istringstream lines(ReadFile(path).value_or(""));
  std::string first;
  std::getline(lines, first);
  json head = json::parse(first, nullptr, /*allow_exceptions=*/false);
  if (IsOf(head, of, now)) {
    kept.found_ = Figures(lines);
  } else {
    head = HeadOf(of, now);
  }
  // Without what was cut off.
  std::string contents = head.dump() + "\n";
  for (const auto& [what, figures] : kept.found_) contents += LineOf(what, figures);
  PENSTOCK_RETURN_IF_ERROR(WriteFileAtomically(path, contents));
  kept.file_ = std::make_unique<std::ofstream>(path, std::ios::app);
  if (*kept.file_) return kept;
  return absl::UnavailableError(absl::StrCat("'", path, "' cannot be written"));
}

const KeptFigures* KeptTimes::Find(const std::string& what) const {
  const auto found = found_.find(what);
  return found == found_.end() ? nullptr : &found->second;
}

absl::Status KeptTimes::Keep(const std::string& what, const KeptFigures& figures) {
  if (file_ == nullptr) return absl::OkStatus();
  *file_ << LineOf(what, figures) << std::flush;
  if (*file_) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("'", path_, "' cannot be written"));
}

absl::Status KeptTimes::Remove() {
  if (std::exchange(file_, nullptr) == nullptr) return absl::OkStatus();
  return RemoveFile(path_);
}

}  // namespace penstock::worker
