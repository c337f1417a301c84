// How much of a search is done to see what it is about to find.
#pragma once

namespace penstock::core {

// At a glance: a few starts as they are, more than a tenth slower now and then where replicas share few long
// samples. Closer: all starts, the best of them tuned.
enum class Sight { kGlance, kCloser };

}  // namespace penstock::core
