// A folder's files once more, without taking room for them.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace penstock {

// Makes the folder `to`, with the files of `from` as hard links, so that they stay whatever happens to those;
// where a file system has no hard links, or the folders are on different ones, as copies. Folders in it are
// left out. Possible errors: UNAVAILABLE (names the folder).
absl::Status LinkFiles(const std::string& from, const std::string& to);

}  // namespace penstock
