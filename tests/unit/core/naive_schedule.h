// What the searches for the best schedule of a small pipeline are judged by.
#pragma once

#include <cstdint>

#include "tests/unit/core/brute_force_schedule.h"

namespace penstock::core {

// The least end, in nanoseconds, of all orders of passes and transfers, each of which is tried, one decision
// at a time and without any pruning; kForever when nothing fits.
int64_t NaiveBestEnd(const SmallPipeline& pipeline);

}  // namespace penstock::core
