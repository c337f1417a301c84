#include "worker/checkpoint/initial_values.h"

#include <filesystem>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/status/status_macros.h"
#include "worker/checkpoint/tensor_file.h"

namespace penstock::worker {
namespace {

namespace fs = std::filesystem;

absl::StatusOr<std::vector<TensorFile>> OpenFiles(const std::string& folder) {
  std::set<std::string> paths;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (absl::StartsWith(name, "rank-") && absl::EndsWith(name, ".safetensors"))
      paths.insert(entry.path().string());
  }
  if (paths.empty())
    return absl::NotFoundError(absl::StrCat("'", folder, "' has no rank-*.safetensors: it is no checkpoint"));
  std::vector<TensorFile> files;
  for (const std::string& path : paths) {
    PENSTOCK_ASSIGN_OR_RETURN(TensorFile file, TensorFile::Open(path));
    files.push_back(std::move(file));
  }
  return files;
}

absl::Status ReadAll(const std::vector<TensorFile>& files, std::vector<MissingPiece>& missing) {
  for (const TensorFile& file : files)
    PENSTOCK_RETURN_IF_ERROR(ReadPieces(file, missing, StoredTypes::kAnyFloat));
  return absl::OkStatus();
}

absl::Status CheckComplete(const std::string& folder, const std::vector<MissingPiece>& missing) {
  if (missing.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("'", folder, "' has no tensor '", missing.front().name, "': it is of another model"));
}

}  // namespace

absl::Status ReadInitialValues(const std::string& folder, const std::vector<TensorPiece>& pieces) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<TensorFile> files, OpenFiles(folder));
  std::vector<MissingPiece> missing = PiecesToRead(pieces);
  PENSTOCK_RETURN_IF_ERROR(ReadAll(files, missing));
  return CheckComplete(folder, missing);
}

absl::Status ReadInitialMasters(const std::string& folder, const std::vector<TensorPiece>& masters) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<TensorFile> files, OpenFiles(folder));
  std::vector<MissingPiece> missing = PiecesToRead(masters);
  PENSTOCK_RETURN_IF_ERROR(ReadAll(files, missing));
  for (MissingPiece& piece : missing) piece.name = std::string(absl::StripPrefix(piece.name, kMasterPrefix));
  PENSTOCK_RETURN_IF_ERROR(ReadAll(files, missing));
  return CheckComplete(folder, missing);
}

}  // namespace penstock::worker
