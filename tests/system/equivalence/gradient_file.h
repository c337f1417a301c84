// Reads what `penstock-worker --dump-gradients` writes (safetensors), without LibTorch.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace penstock::testing {

// By parameter, row-major, as float64. A test failure and an empty map when the file is missing or broken.
std::map<std::string, std::vector<double>> ReadGradientFile(const std::string& path);

}  // namespace penstock::testing
