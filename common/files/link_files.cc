#include "common/files/link_files.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

absl::Status Failed(absl::string_view what, const std::string& path, const std::error_code& error) {
  return absl::UnavailableError(absl::StrCat(what, " '", path, "': ", error.message()));
}

}  // namespace

absl::Status LinkFiles(const std::string& from, const std::string& to) {
  std::error_code error;
  fs::create_directories(to, error);
  if (error) return Failed("making folder", to, error);
  for (fs::directory_iterator entry(from, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->is_directory()) continue;
    const fs::path target = fs::path(to) / entry->path().filename();
    std::error_code no_links;
    fs::create_hard_link(entry->path(), target, no_links);
    if (no_links) fs::copy_file(entry->path(), target, error);
  }
  return error ? Failed("copying the files of", from, error) : absl::OkStatus();
}

}  // namespace penstock
