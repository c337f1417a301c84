// Numbers that a person sets for a longer or a repeated run of a test.
#pragma once

#include <cstdlib>

#include "absl/strings/numbers.h"

namespace penstock {

// `otherwise` where the variable is not set or holds no number.
template <typename Integer>
Integer FromEnvironment(const char* variable, Integer otherwise) {
  const char* text = std::getenv(variable);
  Integer value = otherwise;
  return text != nullptr && absl::SimpleAtoi(text, &value) ? value : otherwise;
}

}  // namespace penstock
