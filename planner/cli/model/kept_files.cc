#include "planner/cli/model/kept_files.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace penstock::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFolder = "hugging_face";
// A tokenizer of 256,000 tokens takes 35e6 bytes.
constexpr uintmax_t kMostBytes = 200'000'000;

// Weights, in any format, and what divides them into files.
bool IsOfWeights(const std::string& name) {
  constexpr std::array kEndings = {".safetensors", ".safetensors.index.json",
                                   ".bin",         ".bin.index.json",
                                   ".pt",          ".pth",
                                   ".h5",          ".msgpack",
                                   ".ckpt",        ".gguf",
                                   ".onnx",        ".ot"};
  return std::ranges::any_of(kEndings, [&](const char* ending) { return absl::EndsWith(name, ending); });
}

absl::Status FileError(const fs::path& path, const std::error_code& error) {
  return absl::UnavailableError(absl::StrCat("copying '", path.string(), "': ", error.message()));
}

absl::Status MakeFolder(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (!error) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat("making folder '", path.string(), "': ", error.message()));
}

absl::Status CopyInto(const fs::path& from, const fs::path& folder) {
  std::error_code error;
  fs::copy_file(from, folder / from.filename(), fs::copy_options::overwrite_existing, error);
  return error ? FileError(from, error) : absl::OkStatus();
}

// Regular files, also behind links, by name.
absl::StatusOr<std::vector<fs::path>> FilesIn(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code ignored;
    if (entry->is_regular_file(ignored)) files.push_back(entry->path());
  }
  if (error) return FileError(folder, error);
  std::ranges::sort(files);
  return files;
}

}  // namespace

std::string KeptFile(const std::string& folder, const std::string& name) {
  return (fs::path(folder) / kFolder / name).string();
}

absl::Status DropKeptFiles(const std::string& folder) {
  const fs::path kept = fs::path(folder) / kFolder;
  std::error_code error;
  fs::remove_all(kept, error);
  if (!error) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("removing '", kept.string(), "': ", error.message()));
}

absl::StatusOr<KeptFiles> KeepFiles(const std::string& from, const std::string& folder) {
  KeptFiles result;
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<fs::path> files, FilesIn(from));
  PENSTOCK_RETURN_IF_ERROR(DropKeptFiles(folder));
  PENSTOCK_RETURN_IF_ERROR(MakeFolder(fs::path(folder) / kFolder));
  for (const fs::path& file : files) {
    const std::string name = file.filename().string();
    if (IsOfWeights(name)) continue;
    std::error_code ignored;
    if (fs::file_size(file, ignored) > kMostBytes) {
      result.left_out.push_back(name);
      continue;
    }
    PENSTOCK_RETURN_IF_ERROR(CopyInto(file, fs::path(folder) / kFolder));
    result.kept.push_back(name);
  }
  return result;
}

absl::Status KeepFilesOf(const std::string& other, const std::string& folder) {
  const fs::path from = fs::path(other) / kFolder;
  const fs::path to = fs::path(folder) / kFolder;
  std::error_code error;
  if (fs::equivalent(from, to, error)) return absl::OkStatus();
  PENSTOCK_RETURN_IF_ERROR(DropKeptFiles(folder));
  if (!fs::exists(from, error)) return absl::OkStatus();
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<fs::path> files, FilesIn(from));
  PENSTOCK_RETURN_IF_ERROR(MakeFolder(to));
  for (const fs::path& file : files) PENSTOCK_RETURN_IF_ERROR(CopyInto(file, to));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> ReturnKeptFiles(const std::string& folder, const std::string& to) {
  std::vector<std::string> names;
  const fs::path from = fs::path(folder) / kFolder;
  std::error_code error;
  if (!fs::exists(from, error)) return names;
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<fs::path> files, FilesIn(from));
  for (const fs::path& file : files) {
    if (file.filename() == "config.json") continue;
    PENSTOCK_RETURN_IF_ERROR(CopyInto(file, to));
    names.push_back(file.filename().string());
  }
  return names;
}

}  // namespace penstock::cli
