// What no assignment of samples to meshes side by side can beat.
#pragma once

#include <vector>

#include "planner/core/strategies/sample_assignment.h"

namespace penstock::core {

// Nanoseconds. Every sample is on some mesh; and whatever weights the meshes have, adding up to 1, the
// longest mesh takes at least the weighted mean of all, which is least where each sample is on the mesh that
// makes least of it: the dual of the linear programme that may divide samples (Boyd and Vandenberghe 2004,
// "Convex optimization", section 5.2). Some weights are tried, each of which is a bound. `whole_ns`: what
// every mesh takes beside its samples.
double BoundOfMeshes(const std::vector<MeshLoad>& loads, double whole_ns);

}  // namespace penstock::core
