// What a minimum begins with.
#pragma once

#include <limits>

namespace penstock::core {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace penstock::core
