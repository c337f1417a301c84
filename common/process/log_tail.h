// The last lines of a log file, for an error message about the process that wrote it.
#pragma once

#include <cstddef>
#include <string>

namespace penstock {

// At most `lines` last lines of the file, each with its end. Empty when there is no such file or nothing in
// it. Reads at most the last 64 KiB.
std::string LogTail(const std::string& path, size_t lines);

}  // namespace penstock
