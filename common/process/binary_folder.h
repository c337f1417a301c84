// Where Penstock's other programs are.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace penstock {

// Folder of the running binary, where the other binaries are.
absl::StatusOr<std::string> BinaryFolder();

}  // namespace penstock
