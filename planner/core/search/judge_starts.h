// Which of many starts are good, for next to nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "planner/core/parallel/run_tasks.h"
#include "planner/core/search/candidate.h"
#include "planner/core/search/starts.h"

namespace penstock::core {

// A start of the search, and what it takes if rows are divided evenly over the context ranks: which division
// into micro-batches is good hardly depends on where their rows are.
struct JudgedStart {
  Start start;
  int64_t even_ns = 0;
  int micro_batches = 0;
};

Candidate MakeCandidate(const ScheduleSpace& space, absl::Span<const SampleTokens> tokens, const Start& start,
                        Candidate::Rows rows);

// The best so many, best first; the earlier of equals. Fewer when the space is stopped.
std::vector<JudgedStart> JudgeStarts(const ScheduleSpace& space, absl::Span<const SampleTokens> tokens,
                                     std::vector<Start> starts, size_t best, const RunTasks& run_tasks);

}  // namespace penstock::core
