#include "planner/cli/tokenizer/model_tokenizer.h"

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "common/process/binary_folder.h"
#include "common/status/status_macros.h"
#include "planner/cli/model/kept_files.h"

namespace penstock::cli {

absl::StatusOr<std::unique_ptr<TokenizerProcess>> StartTokenizer(const std::string& path) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string binaries, BinaryFolder());
  const std::string program = absl::StrCat(binaries, "/penstock-tokenizer");
  if (!std::filesystem::exists(program)) {
    return absl::UnavailableError(
        absl::StrCat("penstock-tokenizer is not in ", binaries,
                     ": it is built where the worker is (cmake --preset quickstart or release)"));
  }
  return TokenizerProcess::Start(program, HasTokenizer(path) ? KeptFile(path, "") : path);
}

bool HasTokenizer(const std::string& folder) {
  for (const char* name : {"tokenizer.json", "tokenizer.model", "spiece.model"}) {
    std::error_code ignored;
    if (std::filesystem::exists(KeptFile(folder, name), ignored)) return true;
  }
  return false;
}

}  // namespace penstock::cli
