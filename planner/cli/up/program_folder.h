// Where the programs are that this one starts.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace penstock::cli {

// The folder of this program, which has these, too. Possible errors: UNAVAILABLE (names the one that is not
// there), those of BinaryFolder.
absl::StatusOr<std::string> FolderOfPrograms(absl::Span<const char* const> names);

}  // namespace penstock::cli
