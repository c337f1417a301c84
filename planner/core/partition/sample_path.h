// A short path through points in the plane: an order in which neighbours are alike in both of their
// coordinates.
//
// The points in the order of a Hilbert curve (Platzman and Bartholdi 1989, "Spacefilling curves and the
// planar travelling salesman problem"), then 2-opt (Croes 1958) and Or-opt (Or 1976) moves over lists of near
// neighbours (Bentley 1992, "Fast algorithms for geometric traveling salesman problems"), with distances |dx|
// + |dy|. Changed: neighbours are looked for along two Hilbert curves, one of them shifted, instead of in a
// tree; and the path is open at both ends, for which a point that is near everything closes it.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "planner/core/parallel/stop.h"

namespace penstock::core {

struct PathPoint {
  double x = 0;
  double y = 0;
};

// Indices of `points` along the path, which begins at the end nearer to (0, 0). Points at one place stay
// together, in order of index. Deterministic; work is bounded by a constant number of moves for each point.
// Longer than need be where `stop` has stopped it.
std::vector<uint32_t> ShortPath(absl::Span<const PathPoint> points, StopToken stop = {});

// Sum of the distances between neighbours of an order.
double PathLength(absl::Span<const PathPoint> points, absl::Span<const uint32_t> order);

// The Hilbert curve alone: by the place of each point on it.
std::vector<uint32_t> HilbertOrder(absl::Span<const PathPoint> points);

}  // namespace penstock::core
