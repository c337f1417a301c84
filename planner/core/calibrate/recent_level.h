// How iterations compare with what is foretold of them, the last ones counting most.
//
// A machine that others use is slower in one minute than in the next: what comes is like what was last. But
// an iteration differs from the next by chance as well, so that several have to count. Of two runs of 400
// iterations of one batch on two CPU cores, foretold eight iterations ahead, a half-life of 3 to 7 iterations
// had the least error (docs/results/2026-12-01-prediction.md).
//
// Pure.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/types/span.h"

namespace penstock::core {

// By iteration, the oldest first; the last one counts 1, and one that is so many iterations older half.
inline constexpr double kHalfLifeIterations = 4;
std::vector<double> RecencyWeights(size_t iterations);

// The weighted mean of what iterations, the oldest first, took over what is foretold; those that are far from
// their weighted median count less (Huber). 1 where there are none.
double RecentLevel(absl::Span<const double> measured_over_foretold);

// The weighted mean of |foretold - measured| / measured likewise; 0 where there are none.
double RecentError(absl::Span<const double> measured_over_foretold);

}  // namespace penstock::core
