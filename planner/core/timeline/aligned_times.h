// Times of iterations on one clock, whatever the clocks of ranks say.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "planner/core/clocks/align_clocks.h"
#include "planner/core/timeline/instruction_time.h"
#include "planner/core/timeline/measured_iteration.h"

namespace penstock::core {

// Of a rank, for the program of an iteration.
struct BatchWait {
  int64_t start_ns = 0;
  // 0: it did not wait, had just started, or nobody knows since when it could have gone on.
  int64_t duration_ns = 0;
};

// By iteration. Nanoseconds since the first report of the first iteration began, by rank 0's clock.
struct AlignedTimes {
  std::vector<TimesByRank> times;
  // By iteration and rank.
  std::vector<std::vector<BatchWait>> waits;
  // What they were put right with.
  std::vector<ClockSet> clocks;
};

AlignedTimes AlignTimes(absl::Span<const MeasuredIteration> iterations);

// 0: there are none.
int64_t EarliestStart(const TimesByRank& times);

}  // namespace penstock::core
