// What SQLite's result codes mean to whoever operates a planner.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace penstock {

// `code` is an (extended) result code, `system_error` the errno of its cause or 0, `text` what SQLite says.
// The message names the file and says what to do. SQLITE_OK gives OK.
absl::Status SqliteError(int code, int system_error, const std::string& path, absl::string_view text);

}  // namespace penstock
