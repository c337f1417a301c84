// A stage group as though it were one rank: what the choice of stages plans with, where placing every sample
// would take far longer than it could change the answer.
//
// The rank takes for a micro-batch what each rank of the group takes that has an even share of it, and needs
// as much memory. What tensor ranks exchange counts with their layers; keys and values count as hidden. A
// slow context rank has fewer rows than the others: the group is as fast as all of them together.
#pragma once

#include "planner/core/cost/profile.h"
#include "planner/core/model/types.h"

namespace penstock::core {

// The job's profile for such a rank; of a group of one rank, the profile itself.
Profile ProfileOfGroup(const Profile& profile, const Job& job);
// The job with one rank a position.
Job JobOfGroups(const Job& job);

}  // namespace penstock::core
