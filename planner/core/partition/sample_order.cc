#include "planner/core/partition/sample_order.h"

#include <algorithm>
#include <numeric>

namespace penstock::core {

std::vector<uint32_t> AlikeOrder(absl::Span<const PathPoint> points, StopToken stop) {
  const auto on_line = [&](double PathPoint::*coordinate) {
    return std::all_of(points.begin(), points.end(), [&](const PathPoint& point) {
      return point.*coordinate == points.front().*coordinate;
    });
  };
  if (!on_line(&PathPoint::x) && !on_line(&PathPoint::y)) return ShortPath(points, stop);
  std::vector<uint32_t> order(points.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return points[a].x + points[a].y < points[b].x + points[b].y;
  });
  return order;
}

}  // namespace penstock::core
