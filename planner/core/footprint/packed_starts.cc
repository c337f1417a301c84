#include "planner/core/footprint/packed_starts.h"

#include <algorithm>

namespace penstock::core {
namespace {

// As planner/core/search/starts.cc: caps of the longest sample that first-fit decreasing is run for, and
// those that samples also fill in their own order.
struct PackedCap {
  double of_longest;
  bool in_order;
};
constexpr PackedCap kPackedCaps[] = {{1, true},     {1.25, false}, {1.5, true},
                                     {1.75, false}, {2, true},     {2.25, false}};

double MadeInOrder(absl::Span<const double> sizes, double cap) {
  double groups = 1;
  double used = 0;
  for (const double size : sizes) {
    if (used + size > cap) {
      ++groups;
      used = 0;
    }
    used += size;
  }
  return groups;
}

// Whoever opens a bin beyond those of samples above half a cap is at most half of it. If it is at most a
// third, all bins before it are filled by two thirds; else such bins hold two of its kind, and the others
// half a cap.
double MadeByFirstFit(absl::Span<const double> sizes, double cap) {
  double fill = 0;
  double above_half = 0;
  for (const double size : sizes) {
    fill += size / cap;
    above_half += size > cap / 2 ? 1 : 0;
  }
  return std::max(above_half, 1.5 * fill + above_half / 4) + 1;
}

}  // namespace

double PackedStartMicroBatches(absl::Span<const double> sizes) {
  const double samples = static_cast<double>(sizes.size());
  const double longest = sizes.empty() ? 0 : *std::ranges::max_element(sizes);
  double all = 0;
  for (const PackedCap& cap : kPackedCaps) {
    const double tokens = cap.of_longest * longest;
    all += std::min(samples, MadeByFirstFit(sizes, tokens));
    if (cap.in_order) all += std::min(samples, MadeInOrder(sizes, tokens));
  }
  return all;
}

}  // namespace penstock::core
