#pragma once

#include <algorithm>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"

namespace penstock {

// The shortest of the times that `measure` returns in three tries. A bound on it holds on a machine that is
// held up now and then, and still fails where something is waited for each time.
inline absl::Duration ShortestTime(absl::FunctionRef<absl::Duration()> measure) {
  absl::Duration shortest = absl::InfiniteDuration();
  for (int i = 0; i < 3; ++i) shortest = std::min(shortest, measure());
  return shortest;
}

}  // namespace penstock
