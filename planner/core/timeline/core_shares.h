// For how much of the time of their passes ranks had a core.
#pragma once

#include <vector>

#include "planner/core/timeline/measured_iteration.h"

namespace penstock::core {

// By rank of the plan, above 0, at most 1: of passes that exchange nothing inside. 1 where nobody knows.
std::vector<double> CoreSharesOf(const MeasuredIteration& iteration);

}  // namespace penstock::core
