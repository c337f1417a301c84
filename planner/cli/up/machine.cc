#include "planner/cli/up/machine.h"

#include <cstdlib>
#include <filesystem>
#include <set>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/files/files.h"
#include "common/status/status_macros.h"

namespace penstock::cli {

absl::StatusOr<int64_t> AvailableMemoryBytes() {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string info, ReadFile("/proc/meminfo"));
  for (const absl::string_view line : absl::StrSplit(info, '\n')) {
    if (!absl::StartsWith(line, "MemAvailable:")) continue;
    // "MemAvailable:   23456789 kB"
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    int64_t kibibytes = 0;
    if (words.size() > 1 && absl::SimpleAtoi(words[1], &kibibytes)) return kibibytes * 1024;
  }
  return absl::NotFoundError("/proc/meminfo has no MemAvailable: use --memory-mb");
}

std::vector<std::string> GpuModels(const std::string& folder) {
  std::set<std::string> models;
  std::error_code error;
  for (const auto& gpu : std::filesystem::directory_iterator(folder, error)) {
    const absl::StatusOr<std::string> information = ReadFile((gpu.path() / "information").string());
    if (!information.ok()) continue;
    for (absl::string_view line : absl::StrSplit(*information, '\n')) {
      // "Model: \t\t NVIDIA H100 80GB HBM3"
      if (absl::ConsumePrefix(&line, "Model:")) models.emplace(absl::StripAsciiWhitespace(line));
    }
  }
  return {models.begin(), models.end()};
}

std::string CacheFolder() {
  if (const char* cache = std::getenv("PENSTOCK_CACHE"); cache != nullptr && *cache != '\0') return cache;
  const char* home = std::getenv("HOME");
  return absl::StrCat(home == nullptr ? "/tmp" : home, "/.cache/penstock");
}

}  // namespace penstock::cli
