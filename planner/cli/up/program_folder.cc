#include "planner/cli/up/program_folder.h"

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "common/process/binary_folder.h"
#include "common/status/status_macros.h"

namespace penstock::cli {

absl::StatusOr<std::string> FolderOfPrograms(absl::Span<const char* const> names) {
  PENSTOCK_ASSIGN_OR_RETURN(std::string folder, BinaryFolder());
  for (const char* name : names) {
    if (std::filesystem::exists(absl::StrCat(folder, "/", name))) continue;
    return absl::UnavailableError(absl::StrCat(name, " is not in ", folder, ", beside penstock: build it"));
  }
  return folder;
}

}  // namespace penstock::cli
