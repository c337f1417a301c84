#include "planner/core/cost/grid_table.h"

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
  // Axes are short, and this has no branch to guess.
  point.lower = -1;
  for (const double place : axis) point.lower += place <= value ? 1 : 0;
  const size_t above = static_cast<size_t>(point.lower) + 1;
  if (above == axis.size()) return point;
  const double low = axis[point.lower];
  point.fraction = (value - low) / (axis[above] - low);
  return point;
}

// Adds one more axis, nested inside those that `point` already has.
void AddAxis(const std::vector<double>& axis, const AxisPoint& place, int number, GridPoint* point) {
  const int size = static_cast<int>(axis.size());
  point->index = point->index * size + place.lower;
  for (int outer = 0; outer < number; ++outer) point->step[outer] *= size;
  // No step to a point that has no weight: it may not have been profiled.
  point->step[number] = place.fraction > 0 ? 1 : 0;
  point->fraction[number] = place.fraction;
}

double Between(double lower, double upper, double fraction) { return lower + fraction * (upper - lower); }

}  // namespace

GridPoint LocateOnGrid(const Grid& grid, TableAxes axes, const TokenSums& sums, bool clamp_below) {
  GridPoint point;
  point.inside = true;
  int number = 0;
  const auto add = [&](const std::vector<double>& axis, double value) {
    const AxisPoint place = LocateOnAxis(axis, value, clamp_below);
    point.inside = point.inside && place.inside;
    if (point.inside) AddAxis(axis, place, number++, &point);
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
  // Along the last axis, then along the one before it, then along the first.
  const auto along_last = [&](int index) {
    return Between(table[index], table[index + point.step[2]], point.fraction[2]);
  };
  const auto along_middle = [&](int index) {
    return Between(along_last(index), along_last(index + point.step[1]), point.fraction[1]);
  };
  const double value =
      Between(along_middle(point.index), along_middle(point.index + point.step[0]), point.fraction[0]);
  if (std::isnan(value)) return std::nullopt;
  return value;
}

}  // namespace penstock::core
