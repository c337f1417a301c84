// The two kinds of links of a cluster.
#pragma once

#include <cstdint>

namespace penstock::core {

enum class Link : uint8_t { kInsideNode, kBetweenNodes };
inline constexpr int kLinks = 2;

}  // namespace penstock::core
