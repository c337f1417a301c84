// Errors of system calls on the files of a dataset.
#pragma once

#include <cerrno>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace penstock {

// "cannot open 'x.bin': No such file or directory" of the call that has just set errno, with the code that
// fits.
inline absl::Status SystemError(const char* action, const std::string& path) {
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot ", action, " '", path, "'"));
}

}  // namespace penstock
