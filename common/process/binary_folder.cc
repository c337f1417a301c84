#include "common/process/binary_folder.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace penstock {

absl::StatusOr<std::string> BinaryFolder() {
  std::error_code error;
  const std::filesystem::path binary = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return absl::UnavailableError(absl::StrCat("finding penstock's own folder: ", error.message()));
  return binary.parent_path().string();
}

}  // namespace penstock
