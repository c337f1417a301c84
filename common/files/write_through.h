// Writes to what is no regular file: a device, a FIFO, or whatever the process prints to.
#pragma once

#include <sys/stat.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace penstock {

// The standard stream of this process (its descriptor) that is this very file; -1: neither. Writing there
// shares its position with what is printed, so that neither overwrites the other.
int StandardStreamOf(const struct stat& file);

// `file` is the state of `path`. See WriteFileAtomically for how long it waits, and for its errors.
absl::Status WriteThrough(const std::string& path, const struct stat& file, absl::string_view contents);

}  // namespace penstock
