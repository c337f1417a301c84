// What a router that is not even makes of a profile, for a mesh whose ranks divide the experts (execution.md,
// section 7, "Uneven routers"): the ranks of a group meet at every exchange of rows, so all take as long as
// the one whose experts have most of them.
//
//   profile_ = LoadedProfile(std::move(profile), job);
#pragma once

#include "planner/core/cost/profile.h"
#include "planner/core/model/types.h"

namespace penstock::core {

// The profile of the job's mesh, whose layers take and keep what they do with the measured load of its number
// of ranks; without `expert_loads`. One that is loaded, or has no load for the mesh, stays as it is.
Profile LoadedProfile(Profile profile, const Job& job);

// By what all that depends on the tokens of a layer is multiplied, where experts have this part of its
// multiplications, and the fullest rank so many times its even share of rows.
double LoadFactor(double expert_share, double fullest);

}  // namespace penstock::core
