#include "tests/integration/bad_input/table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/process/sanitized.h"

namespace penstock {
namespace {

void ReadRows(const std::filesystem::path& path, std::vector<Row>* rows) {
  std::ifstream file(path);
  std::string line;
  std::string section;
  for (int number = 1; std::getline(file, line); ++number) {
    const std::string text(absl::StripAsciiWhitespace(line));
    if (text.empty() || absl::StartsWith(text, "#")) continue;
    const std::string place = absl::StrCat(path.filename().string(), ":", number);
    if (absl::StartsWith(text, "[")) {
      ASSERT_TRUE(absl::EndsWith(text, "]")) << place;
      section = text.substr(1, text.size() - 2);
      continue;
    }
    std::vector<std::string> cells = absl::StrSplit(text, absl::MaxSplits('|', 2));
    ASSERT_EQ(cells.size(), 3U) << place;
    for (std::string& cell : cells) absl::StripAsciiWhitespace(&cell);
    rows->push_back({place, section, cells[0], cells[1], cells[2]});
  }
}

}  // namespace

std::vector<Row> ReadTable(const std::string& folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".txt") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<Row> rows;
  for (const auto& path : paths) ReadRows(path, &rows);
  if (!kSanitized) return rows;
  std::vector<Row> some;
  for (size_t i = 0; i < rows.size(); i += 3) some.push_back(std::move(rows[i]));
  return some;
}

}  // namespace penstock
