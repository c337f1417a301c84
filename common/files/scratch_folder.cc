#include "common/files/scratch_folder.h"

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/files/errors.h"

namespace penstock {

absl::StatusOr<ScratchFolder> ScratchFolder::Make(const std::string& name) {
  std::error_code ignored;
  const std::filesystem::path temporary = std::filesystem::temp_directory_path(ignored);
  return MakeBeside(absl::StrCat(temporary.empty() ? "/tmp" : temporary.string(), "/", name));
}

absl::StatusOr<ScratchFolder> ScratchFolder::MakeBeside(const std::string& beside) {
  std::string path = absl::StrCat(beside, "-XXXXXX");
  if (mkdtemp(path.data()) == nullptr) return FileError(path, "making", errno);
  return ScratchFolder(path);
}

ScratchFolder::~ScratchFolder() {
  if (path_.empty()) return;
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace penstock
