#include "planner/cli/model/base_folder.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/files/link_files.h"
#include "common/status/status_macros.h"

namespace penstock::cli {

std::string BaseFolder(const std::string& folder) { return absl::StrCat(folder, "/base"); }

absl::Status KeepBase(const std::string& checkpoint, const std::string& folder) {
  std::error_code ignored;
  if (std::filesystem::equivalent(checkpoint, BaseFolder(folder), ignored)) return absl::OkStatus();
  PENSTOCK_RETURN_IF_ERROR(DropBase(folder));
  return LinkFiles(checkpoint, BaseFolder(folder));
}

absl::Status DropBase(const std::string& folder) {
  std::error_code error;
  std::filesystem::remove_all(BaseFolder(folder), error);
  if (!error) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("removing '", BaseFolder(folder), "': ", error.message()));
}

}  // namespace penstock::cli
