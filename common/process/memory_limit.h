// How much memory this process may have.
#pragma once

#include <cstddef>
#include <string>

namespace penstock {

// The least of what the machine has and of the limits of the process' control group and those above it
// (version 2, and version 1's). 0: not known. `root`: where to look, for tests.
size_t MemoryOfProcess(const std::string& root = "");

}  // namespace penstock
