// Multilinear interpolation in the tables of a cost profile.
//
//   GridPoint point = LocateOnGrid(grid, TableAxes::kTarget, sums);
//   if (point.inside) std::optional<double> time = Interpolate(table, point);
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "planner/core/cost/profile.h"

namespace penstock::core {

// A place among the points of a table: the point below it on all axes, and on each axis the way to the point
// above and how far of it. Axes that a table lacks have no way.
struct GridPoint {
  bool inside = false;
  int index = 0;
  std::array<int, 3> step = {};
  std::array<double, 3> fraction = {};
};

// Where a padded rectangle lies on the axes of a table. `clamp_below`: a rectangle smaller than the smallest
// point of an axis is taken to be that point (an overestimate); otherwise it is outside, as is all that is
// beyond the largest.
GridPoint LocateOnGrid(const Grid& grid, TableAxes axes, const TokenSums& sums, bool clamp_below);

// Up to three places at the border of what was measured: the rectangle made smaller along one axis, to the
// nearest point of that axis. Returns how many are inside the grid.
int LocateBelow(const Grid& grid, TableAxes axes, const TokenSums& sums, std::array<GridPoint, 3>* points);

// The value there. Nothing when outside, or when a corner that counts was not profiled.
std::optional<double> Interpolate(const std::vector<double>& table, const GridPoint& point);

}  // namespace penstock::core
