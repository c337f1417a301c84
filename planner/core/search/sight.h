// How much of a search is done to see what it is about to find.
#pragma once

namespace penstock::core {

// At a glance: a few starts as they are, more than a tenth slower now and then where replicas share few long
// samples. Closer: the best of all starts, tuned and changed for a while.
enum class Sight { kGlance, kCloser };

// By what share of what was seen a plan may take less.
constexpr double ErrorOf(Sight sight) { return sight == Sight::kGlance ? 0.12 : 0.05; }

}  // namespace penstock::core
