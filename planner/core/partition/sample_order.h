// Order of the samples in which neighbours are alike.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "planner/core/model/types.h"

namespace penstock::core {

// By length, shortest first: of the source, then of the target.
std::vector<uint32_t> OrderByLength(absl::Span<const SampleTokens> samples);

}  // namespace penstock::core
