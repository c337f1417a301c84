#include "common/dataset/named_datasets.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/status/status_macros.h"

namespace penstock {
namespace {

// So that their sum is a number.
constexpr double kMostWeight = 1e12;

// Names become keys of metrics and parts of a plot's title.
bool IsName(absl::string_view name) {
  const auto fits = [](char c) { return absl::ascii_isalnum(c) || c == '_' || c == '-' || c == '.'; };
  return !name.empty() && std::ranges::all_of(name, fits);
}

// A colon behind a slash is one of the path.
absl::StatusOr<NamedDataset> ParseDataset(absl::string_view text) {
  NamedDataset dataset = {.name = "", .path = std::string(text)};
  const size_t colon = text.find(':');
  if (colon != absl::string_view::npos && colon < text.find('/')) {
    dataset.name = std::string(text.substr(0, colon));
    dataset.path = std::string(text.substr(colon + 1));
  } else {
    const size_t slash = text.rfind('/');
    dataset.name = std::string(slash == absl::string_view::npos ? text : text.substr(slash + 1));
  }
  if (!dataset.path.empty()) return dataset;
  return absl::InvalidArgumentError(absl::StrCat("'", text, "' names no data set; give its path"));
}

// Of several, which are told apart by their names.
absl::Status AddName(const NamedDataset& dataset, std::set<std::string>& names) {
  if (!IsName(dataset.name)) {
    return absl::InvalidArgumentError(absl::StrCat("'", dataset.path, "': the name '", dataset.name,
                                                   "' is not made of letters, digits, '_', '-' and '.'; give "
                                                   "it one: NAME:",
                                                   dataset.path));
  }
  if (names.insert(dataset.name).second) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("'", dataset.path, "' is the second one called '",
                                                 dataset.name,
                                                 "'; give it another name: NAME:", dataset.path));
}

absl::StatusOr<MixtureTask> ParseTask(absl::string_view text) {
  const size_t equals = text.rfind('=');
  if (equals == absl::string_view::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' has no weight; give its share of the samples: ", text, "=WEIGHT"));
  }
  MixtureTask task;
  PENSTOCK_ASSIGN_OR_RETURN(task.dataset, ParseDataset(text.substr(0, equals)));
  const absl::string_view weight = text.substr(equals + 1);
  if (absl::SimpleAtod(weight, &task.weight) && task.weight >= 0 && task.weight <= kMostWeight) return task;
  return absl::InvalidArgumentError(
      absl::StrCat("'", text, "': the weight '", weight, "' is no number from 0 to ", kMostWeight));
}

std::string AbsolutePath(const std::string& path) {
  return std::filesystem::absolute(path).lexically_normal().string();
}

std::string ToText(const NamedDataset& dataset) {
  const absl::StatusOr<NamedDataset> alone = ParseDataset(dataset.path);
  const bool says_the_name = alone.ok() && alone->name == dataset.name && alone->path == dataset.path;
  return says_the_name ? dataset.path : absl::StrCat(dataset.name, ":", dataset.path);
}

// The shortest number that is read as the same.
std::string ToText(double number) {
  std::array<char, 32> text;
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), number).ptr};
}

}  // namespace

absl::StatusOr<std::vector<NamedDataset>> ParseDatasets(absl::string_view text) {
  std::vector<NamedDataset> datasets;
  std::set<std::string> names;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    PENSTOCK_ASSIGN_OR_RETURN(datasets.emplace_back(), ParseDataset(part));
  }
  if (datasets.size() == 1) return datasets;
  for (const NamedDataset& dataset : datasets) PENSTOCK_RETURN_IF_ERROR(AddName(dataset, names));
  return datasets;
}

absl::StatusOr<std::vector<MixtureTask>> ParseMixture(absl::string_view text) {
  std::vector<MixtureTask> tasks;
  std::set<std::string> names;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    PENSTOCK_ASSIGN_OR_RETURN(tasks.emplace_back(), ParseTask(part));
    PENSTOCK_RETURN_IF_ERROR(AddName(tasks.back().dataset, names));
  }
  if (std::ranges::any_of(tasks, [](const MixtureTask& task) { return task.weight > 0; })) return tasks;
  return absl::InvalidArgumentError(
      absl::StrCat("'", text, "': every weight is 0, so no sample would be taken; give one above 0"));
}

std::vector<std::string> PathsOf(const std::vector<MixtureTask>& tasks) {
  std::vector<std::string> paths;
  for (const MixtureTask& task : tasks) paths.push_back(task.dataset.path);
  return paths;
}

std::vector<NamedDataset> WithAbsolutePaths(std::vector<NamedDataset> datasets) {
  for (NamedDataset& dataset : datasets) dataset.path = AbsolutePath(dataset.path);
  return datasets;
}

std::vector<MixtureTask> WithAbsolutePaths(std::vector<MixtureTask> tasks) {
  for (MixtureTask& task : tasks) task.dataset.path = AbsolutePath(task.dataset.path);
  return tasks;
}

std::string ToText(const std::vector<NamedDataset>& datasets) {
  return absl::StrJoin(datasets, ",", [](std::string* text, const NamedDataset& dataset) {
    absl::StrAppend(text, ToText(dataset));
  });
}

std::string ToText(const std::vector<MixtureTask>& tasks) {
  return absl::StrJoin(tasks, ",", [](std::string* text, const MixtureTask& task) {
    absl::StrAppend(text, ToText(task.dataset), "=", ToText(task.weight));
  });
}

}  // namespace penstock
