// Whole files, read and written with errors that name them.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace penstock {

// The contents of a file.
// Possible errors: NOT_FOUND, PERMISSION_DENIED, UNAVAILABLE (reading failed); all name the path.
absl::StatusOr<std::string> ReadFile(const std::string& path);

// Writes the file aside ("PATH.partial"), flushes it to disk and renames it: readers see the old contents or
// the new, never a part. Missing folders are made. Possible errors: PERMISSION_DENIED, RESOURCE_EXHAUSTED
// (the disk is full), UNAVAILABLE; all name the path.
absl::Status WriteFileAtomically(const std::string& path, absl::string_view contents);

}  // namespace penstock
