// How far the costs of one version are from those of the version before.
//
// All iterations of a fit may be wrong in the same way: the machine was suspended, or somebody else's job ran
// beside. Plans that were made for that would last until the next fit. What lasts is reached in a few
// versions.
#pragma once

#include "penstock/v1/cost_profile.pb.h"

namespace penstock::core {

// What a version may make of each cost, times or divided by it.
inline constexpr double kMostStep = 2;

// `revised` with every time, every ratio of times, and every speed and latency of links no further than
// kMostStep from what `before` says, another version of the same profile. What one of them does not say stays
// as it is in `revised`. So do slow ranks and links, noise and loads of experts: these compare what was
// measured at the same time, so what disturbs all does not change them.
v1::CostProfile BoundedStep(const v1::CostProfile& before, v1::CostProfile revised);

}  // namespace penstock::core
