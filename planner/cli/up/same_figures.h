// Whether figures by number are still those that were said.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>

namespace penstock::cli {

// Of the same numbers, and each less than `worth_saying` of the one before away from it.
inline bool SameFigures(const std::map<uint32_t, double>& before, const std::map<uint32_t, double>& now,
                        double worth_saying) {
  return std::equal(before.begin(), before.end(), now.begin(), now.end(), [&](const auto& a, const auto& b) {
    return a.first == b.first && std::abs(b.second / a.second - 1) < worth_saying;
  });
}

}  // namespace penstock::cli
