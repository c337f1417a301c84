#include "planner/cli/strategy_list.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <filesystem>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/files/files.h"
#include "common/mesh/rank_places.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"

namespace penstock::cli {
namespace {

absl::Status Wrong(absl::string_view strategy, const auto&... what) {
  return absl::InvalidArgumentError(
      absl::StrCat("--strategies: '", strategy, "': ", what...,
                   "; write one as 'pp 2 x dp 4 x cp 2 x tp 2', or several side by side as 'tp 4 + dp 4'"));
}

// "7,9,9,7"
absl::StatusOr<std::vector<uint32_t>> Numbers(absl::string_view strategy, absl::string_view text) {
  std::vector<uint32_t> numbers;
  for (const absl::string_view part : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    uint32_t number = 0;
    if (!absl::SimpleAtoi(part, &number)) return Wrong(strategy, "'", part, "' is not a number");
    numbers.push_back(number);
  }
  if (numbers.empty()) return Wrong(strategy, "a number is missing");
  return numbers;
}

absl::Status CheckGivenOnce(absl::string_view strategy, const std::vector<absl::string_view>& words) {
  for (size_t i = 0; i < words.size(); i += 2) {
    for (size_t j = 0; j < i; j += 2)
      if (words[i] == words[j]) return Wrong(strategy, words[i], " is given twice");
  }
  return absl::OkStatus();
}

absl::Status SetDegree(absl::string_view strategy, absl::string_view name, uint32_t degree, v1::Mesh* mesh) {
  if (degree == 0) return Wrong(strategy, name, " is 0; use at least 1");
  if (name == "pp") {
    mesh->set_pipeline(degree);
  } else if (name == "dp") {
    mesh->set_data(degree);
  } else if (degree == 1) {
    // Not set, so that a mesh has one form.
  } else if (name == "cp") {
    mesh->set_context(degree);
  } else if (name == "tp") {
    mesh->set_tensor(degree);
  } else {
    mesh->set_expert(degree);
  }
  return absl::OkStatus();
}

absl::Status SetWord(absl::string_view strategy, absl::string_view name, absl::string_view value,
                     v1::StrategyMesh* mesh) {
  constexpr absl::string_view kDegrees[] = {"pp", "dp", "cp", "tp", "ep"};
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<uint32_t> numbers, Numbers(strategy, value));
  if (std::ranges::find(kDegrees, name) != std::end(kDegrees)) {
    if (numbers.size() > 1) return Wrong(strategy, name, " has ", numbers.size(), " numbers");
    return SetDegree(strategy, name, numbers.front(), mesh->mutable_mesh());
  }
  if (name == "layers") {
    mesh->mutable_layers_per_stage()->Assign(numbers.begin(), numbers.end());
  } else if (name == "on") {
    mesh->mutable_rank_of_stage()->Assign(numbers.begin(), numbers.end());
  } else {
    return Wrong(strategy, "'", name, "' is none of pp, dp, cp, tp, ep, layers and on");
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::StrategyMesh> ParseMesh(absl::string_view text) {
  std::vector<absl::string_view> words;
  for (absl::string_view word : absl::StrSplit(text, absl::ByAnyChar(" \t"), absl::SkipEmpty())) {
    if (word != "x") words.push_back(word);
  }
  if (words.empty() || words.size() % 2 != 0)
    return Wrong(text, "a word without a number, or a number without a word");
  PENSTOCK_RETURN_IF_ERROR(CheckGivenOnce(text, words));
  v1::StrategyMesh mesh;
  mesh.mutable_mesh()->set_pipeline(1);
  mesh.mutable_mesh()->set_data(1);
  for (size_t i = 0; i < words.size(); i += 2)
    PENSTOCK_RETURN_IF_ERROR(SetWord(text, words[i], words[i + 1], &mesh));
  return mesh;
}

absl::StatusOr<v1::Strategy> ParseStrategy(absl::string_view text) {
  v1::Strategy strategy;
  for (const absl::string_view mesh : absl::StrSplit(text, '+')) {
    PENSTOCK_ASSIGN_OR_RETURN(*strategy.add_meshes(), ParseMesh(absl::StripAsciiWhitespace(mesh)));
  }
  return strategy;
}

// Of lines, without comments.
std::string WithoutComments(absl::string_view text) {
  std::vector<std::string> lines;
  for (const absl::string_view line : absl::StrSplit(text, '\n'))
    lines.emplace_back(line.substr(0, line.find('#')));
  return absl::StrJoin(lines, ";");
}

}  // namespace

const std::vector<const char*>& MeshFlags() {
  static const auto* flags = new std::vector<const char*>{
      "--pp", "--dp", "--cp", "--tp", "--ep", "--layers-per-stage", "--rank-of-stage"};
  return *flags;
}

void AddStrategiesFlag(CLI::App& command, std::string& text, const std::string& more) {
  command
      .add_option("--strategies", text,
                  absl::StrCat("Meshes of as many ranks each, of which every iteration runs on the one that "
                               "is fastest for its lengths: 'pp 2 x dp 4; pp 1 x dp 2 x cp 4; tp 4 + dp 4' "
                               "(several side by side), or a file "
                               "with one a line; in place of --pp, --dp, --cp, --tp and --ep",
                               more))
      ->check([](const std::string& given) {
        return std::string(given.empty() ? "is empty; leave it out, or name a strategy" : "");
      });
}

absl::StatusOr<std::vector<v1::Strategy>> ReadStrategies(const std::string& file_or_text) {
  std::string text = file_or_text;
  if (std::error_code ignored; std::filesystem::is_regular_file(file_or_text, ignored)) {
    absl::StatusOr<std::string> read = ReadFile(file_or_text);
    if (!read.ok()) return AnnotateError(read.status(), "--strategies");
    text = WithoutComments(*read);
  } else if (!absl::StrContains(text, ' ')) {
    return absl::NotFoundError(
        absl::StrCat("--strategies: '", text, "' is no file, and no strategy such as 'pp 2 x dp 4'"));
  }
  std::vector<v1::Strategy> strategies;
  for (const absl::string_view part : absl::StrSplit(text, ';')) {
    const absl::string_view stripped = absl::StripAsciiWhitespace(part);
    if (stripped.empty()) continue;
    PENSTOCK_ASSIGN_OR_RETURN(strategies.emplace_back(), ParseStrategy(stripped));
  }
  if (strategies.empty()) return absl::InvalidArgumentError("--strategies: there is none");
  return strategies;
}

std::string StrategyName(const v1::Strategy& strategy) {
  std::vector<std::string> names;
  for (const v1::StrategyMesh& mesh : strategy.meshes()) {
    std::string& name = names.emplace_back(MeshName(mesh.mesh()));
    if (!mesh.layers_per_stage().empty())
      absl::StrAppend(&name, ", layers ", absl::StrJoin(mesh.layers_per_stage(), ","));
    if (!mesh.rank_of_stage().empty())
      absl::StrAppend(&name, " on ", absl::StrJoin(mesh.rank_of_stage(), ","));
  }
  return absl::StrJoin(names, " + ");
}

std::string StrategyNames(absl::Span<const v1::Strategy> strategies) {
  return absl::StrJoin(strategies, "; ", [](std::string* text, const v1::Strategy& strategy) {
    absl::StrAppend(text, StrategyName(strategy));
  });
}

void SetStrategies(const std::vector<v1::Strategy>& strategies, v1::JobSpec* job) {
  job->mutable_strategies()->Assign(strategies.begin(), strategies.end());
  *job->mutable_mesh() = strategies.front().meshes(0).mesh();
}

}  // namespace penstock::cli
