// Which samples have no room on which replicas, where ranks have limits of memory of their own.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "planner/core/model/types.h"
#include "planner/core/search/schedule_space.h"

namespace penstock::core {

// By replica, and in it by sample: whether it does not fit there, packed and alone. Empty: none is too large
// for one replica and not for another.
std::vector<char> TooLargeSamples(const ScheduleSpace& space, absl::Span<const SampleTokens> tokens);

}  // namespace penstock::core
