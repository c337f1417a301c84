// Reads what `penstock-worker --dump-gradients` writes (safetensors), without LibTorch.
#pragma once

#include <string>

#include "tests/system/equivalence/plain_tensor.h"

namespace penstock::testing {

// By entry: a parameter, or a block of one. A test failure and an empty map when the file is missing or
// broken.
NamedTensors ReadGradientFile(const std::string& path);

}  // namespace penstock::testing
