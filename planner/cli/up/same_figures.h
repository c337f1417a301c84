// Whether figures by number, or by some other key, are still those that were said.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>

namespace penstock::cli {

// Of the same keys, and each less than `worth_saying` of the one before away from it.
template <typename Key>
bool SameFigures(const std::map<Key, double>& before, const std::map<Key, double>& now, double worth_saying) {
  return std::equal(before.begin(), before.end(), now.begin(), now.end(), [&](const auto& a, const auto& b) {
    return a.first == b.first && std::abs(b.second / a.second - 1) < worth_saying;
  });
}

}  // namespace penstock::cli
