#include "planner/core/strategies/share_sizes.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace penstock::core {
namespace {

// Fine enough that rounding moves no more than a tenth of a per cent of a share, and still read with ease.
constexpr double kLargestShareWeight = 1000;

}  // namespace

std::vector<double> LevelShares(const std::vector<double>& needs, double total) {
  std::vector<double> ascending = needs;
  std::ranges::sort(ascending);
  // Over the ranks that need least, as many as stay below the level that they then have.
  double sum = total, level = 0;
  for (size_t filled = 1; filled <= ascending.size(); ++filled) {
    sum += ascending[filled - 1];
    level = sum / static_cast<double>(filled);
    if (filled == ascending.size() || level <= ascending[filled]) break;
  }
  std::vector<double> shares;
  for (const double need : needs) shares.push_back(std::max(0.0, level - need));
  return shares;
}

std::vector<double> SharesBySpeed(const std::vector<double>& speeds, const std::vector<double>& room,
                                  double total) {
  std::vector<double> shares(speeds.size(), 0);
  std::vector<bool> is_full(speeds.size(), false);
  // Those whose room ends first are filled first; the others share what is left.
  for (bool again = true; again;) {
    again = false;
    double left = total, speed = 0;
    for (size_t rank = 0; rank < speeds.size(); ++rank) {
      if (is_full[rank])
        left -= shares[rank];
      else
        speed += speeds[rank];
    }
    if (speed == 0) return left > 0 ? std::vector<double>() : shares;
    for (size_t rank = 0; rank < speeds.size(); ++rank) {
      if (is_full[rank]) continue;
      shares[rank] = left * speeds[rank] / speed;
      if (shares[rank] <= room[rank]) continue;
      shares[rank] = std::max(0.0, room[rank]);
      is_full[rank] = again = true;
    }
  }
  return shares;
}

std::vector<uint32_t> WeightsOfShares(const std::vector<double>& shares) {
  const double largest = *std::ranges::max_element(shares);
  std::vector<uint32_t> weights;
  for (const double share : shares)
    weights.push_back(static_cast<uint32_t>(std::lround(share / largest * kLargestShareWeight)));
  return weights;
}

}  // namespace penstock::core
