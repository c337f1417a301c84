#include "planner/core/cost/grid_table.h"

#include <algorithm>
#include <cmath>

namespace penstock::core {
namespace {

struct AxisPoint {
  bool inside = false;
  int lower = 0;
  // Weight of the point after `lower`.
  double fraction = 0;
};

AxisPoint LocateOnAxis(const std::vector<double>& axis, double value, bool clamp_below) {
  AxisPoint point;
  if (axis.empty() || value > axis.back()) return point;
  if (value < axis.front()) {
    point.inside = clamp_below;
    return point;
  }
  point.inside = true;
  const auto above = std::upper_bound(axis.begin(), axis.end(), value);
  point.lower = static_cast<int>(above - axis.begin()) - 1;
  if (above == axis.end()) return point;
  const double low = axis[point.lower];
  point.fraction = (value - low) / (*above - low);
  return point;
}

// Adds one more axis, nested inside those that `point` already has.
void AddAxis(const std::vector<double>& axis, const AxisPoint& place, GridPoint* point) {
  const int size = static_cast<int>(axis.size());
  const int corners = point->corners;
  for (int corner = 0; corner < corners; ++corner) {
    const int index = point->index[corner] * size + place.lower;
    const double weight = point->weight[corner];
    point->index[corner] = index;
    if (place.fraction == 0) continue;
    point->weight[corner] = weight * (1.0 - place.fraction);
    point->index[point->corners] = index + 1;
    point->weight[point->corners] = weight * place.fraction;
    ++point->corners;
  }
}

}  // namespace

GridPoint LocateOnGrid(const Grid& grid, TableAxes axes, const TokenSums& sums, bool clamp_below) {
  GridPoint point;
  point.inside = true;
  point.corners = 1;
  point.weight[0] = 1.0;
  const auto add = [&](const std::vector<double>& axis, double value) {
    const AxisPoint place = LocateOnAxis(axis, value, clamp_below);
    point.inside = point.inside && place.inside;
    if (point.inside) AddAxis(axis, place, &point);
  };
  add(grid.rows, sums.rows);
  if (axes != TableAxes::kTarget) add(grid.source_length, sums.source_length);
  if (axes != TableAxes::kSource) add(grid.target_length, sums.target_length);
  return point;
}

int LocateBelow(const Grid& grid, TableAxes axes, const TokenSums& sums, std::array<GridPoint, 3>* points) {
  int count = 0;
  const auto try_axis = [&](const std::vector<double>& axis, int32_t TokenSums::*value) {
    const auto above = std::upper_bound(axis.begin(), axis.end(), static_cast<double>(sums.*value));
    if (above == axis.begin()) return;
    TokenSums smaller = sums;
    smaller.*value = static_cast<int32_t>(*(above - 1));
    const GridPoint point = LocateOnGrid(grid, axes, smaller, /*clamp_below=*/false);
    if (point.inside) (*points)[count++] = point;
  };
  try_axis(grid.rows, &TokenSums::rows);
  if (axes != TableAxes::kTarget) try_axis(grid.source_length, &TokenSums::source_length);
  if (axes != TableAxes::kSource) try_axis(grid.target_length, &TokenSums::target_length);
  return count;
}

std::optional<double> Interpolate(const std::vector<double>& table, const GridPoint& point) {
  if (!point.inside) return std::nullopt;
  double value = 0;
  for (int corner = 0; corner < point.corners; ++corner) {
    value += point.weight[corner] * table[point.index[corner]];
  }
  if (std::isnan(value)) return std::nullopt;
  return value;
}

}  // namespace penstock::core
