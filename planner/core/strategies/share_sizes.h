// How much of something each rank takes, by what it has room for and how fast it is.
//
//   std::vector<double> shares = LevelShares({5, 3, 1}, /*total=*/5);     // 0, 1.5, 3.5: up to 5, 4.5
//   and 4.5 std::vector<uint32_t> weights = WeightsOfShares(shares);              // 0, 429, 1000
#pragma once

#include <cstdint>
#include <vector>

namespace penstock::core {

// Adds up to `total`, and the fullest rank (what it needs anyway, and its share) is as empty as it can be:
// shares fill the room above the needs up to one level, as water does. `needs` is not empty.
std::vector<double> LevelShares(const std::vector<double>& needs, double total);

// Adds up to `total`, and the last of the ranks, which go through their shares at these speeds, is as early
// as it can be with no share above its room. Empty: all of the room does not suffice. Speeds are above 0.
std::vector<double> SharesBySpeed(const std::vector<double>& speeds, const std::vector<double>& room,
                                  double total);

// Whole numbers in these proportions, the largest of which is 1000. At least one share is above 0.
std::vector<uint32_t> WeightsOfShares(const std::vector<double>& shares);

}  // namespace penstock::core
