#include "common/dataset/import_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/dataset/system_error.h"
#include "common/status/status_macros.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kNanosecondsPerSecond = 1'000'000'000;

bool IsParquetName(const std::string& path) { return absl::EndsWith(path, ".parquet"); }

bool IsJsonLinesName(const std::string& path) {
  return absl::EndsWith(path, ".jsonl") || absl::EndsWith(path, ".json") ||
         absl::EndsWith(path, ".jsonl.gz") || absl::EndsWith(path, ".json.gz");
}

ImportFormat KindOf(const std::string& path, ImportFormat format, bool in_folder) {
  if (format != ImportFormat::kAuto) return format;
  if (IsParquetName(path)) return ImportFormat::kParquet;
  // In a folder only text and Parquet are told apart by name.
  return !in_folder && IsJsonLinesName(path) ? ImportFormat::kJsonLines : ImportFormat::kText;
}

absl::StatusOr<ImportFile> Describe(const std::string& path, ImportFormat kind) {
  ImportFile file = {.path = path, .kind = kind};
  struct stat status = {};
  if (stat(path.c_str(), &status) != 0) return SystemError("look at", path);
  file.regular = S_ISREG(status.st_mode);
  if (!file.regular) return file;
  file.bytes = static_cast<uint64_t>(status.st_size);
  file.modified_ns = int64_t{status.st_mtim.tv_sec} * kNanosecondsPerSecond + status.st_mtim.tv_nsec;
  return file;
}

// Without hidden ones, in order.
absl::StatusOr<std::vector<std::string>> FilesBelow(const std::string& folder) {
  std::error_code error;
  std::vector<std::string> files;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const bool hidden = absl::StartsWith(entry->path().filename().string(), ".");
    if (hidden) entry.disable_recursion_pending();
    if (!hidden && entry->is_regular_file(error)) files.push_back(entry->path().string());
  }
  if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot list folder '", folder, "'"));
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

absl::StatusOr<std::vector<ImportFile>> ListImportFiles(const std::vector<std::string>& paths,
                                                        ImportFormat format) {
  std::vector<ImportFile> files;
  const auto add = [&](const std::string& path, bool in_folder) -> absl::Status {
    PENSTOCK_ASSIGN_OR_RETURN(ImportFile file, Describe(path, KindOf(path, format, in_folder)));
    files.push_back(std::move(file));
    return absl::OkStatus();
  };
  for (const std::string& path : paths) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (!fs::exists(status))
      return absl::NotFoundError(absl::StrCat("there is no file or folder '", path, "'"));
    if (!fs::is_directory(status)) {
      PENSTOCK_RETURN_IF_ERROR(add(path, /*in_folder=*/false));
      continue;
    }
    PENSTOCK_ASSIGN_OR_RETURN(const std::vector<std::string> below, FilesBelow(path));
    for (const std::string& file : below) {
      if (format == ImportFormat::kParquet && !IsParquetName(file)) continue;
      PENSTOCK_RETURN_IF_ERROR(add(file, /*in_folder=*/true));
    }
  }
  return files;
}

void LeaveOutUnfinished(const std::string& prefix, std::vector<ImportFile>& files) {
  const auto whole = [](const std::string& path) {
    std::error_code ignored;
    return fs::absolute(path, ignored).lexically_normal().string();
  };
  const std::string beginning = absl::StrCat(whole(prefix), ".");
  std::erase_if(files, [&](const ImportFile& file) {
    const std::string path = whole(file.path);
    return absl::StartsWith(path, absl::StrCat(beginning, "import.")) ||
           (absl::StartsWith(path, beginning) && absl::EndsWith(path, ".partial"));
  });
}

bool IsUnchanged(const ImportFile& before, const ImportFile& now) { return before == now && before.regular; }

}  // namespace penstock
