#include "common/files/folder_changes.h"

#include <filesystem>
#include <system_error>

#include "common/files/errors.h"
#include "common/files/files.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

absl::Status StatusOf(const std::string& path, absl::string_view doing, const std::error_code& error) {
  return error ? FileError(path, doing, error.value()) : absl::OkStatus();
}

class Real : public FolderChanges {
 public:
  absl::Status Write(const std::string& path, absl::string_view contents) override {
    return WriteFileAtomically(path, contents);
  }

  absl::Status Make(const std::string& folder) override {
    std::error_code error;
    fs::create_directories(folder, error);
    return StatusOf(folder, "making folder", error);
  }

  absl::Status Sync(const std::string& folder) override { return SyncFolder(folder); }

  absl::Status Rename(const std::string& from, const std::string& to) override {
    std::error_code error;
    fs::rename(from, to, error);
    return StatusOf(to, "renaming to", error);
  }

  absl::Status Remove(const std::string& path) override {
    std::error_code error;
    fs::remove_all(path, error);
    return StatusOf(path, "removing", error);
  }
};

}  // namespace

FolderChanges& RealFolderChanges() {
  static auto* changes = new Real;
  return *changes;
}

}  // namespace penstock
