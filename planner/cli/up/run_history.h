// What a run has shown of its iterations, whatever ranks they were done with.
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/v1/planner_service.pb.h"
#include "planner/cli/up/task_counts.h"

namespace penstock::cli {

struct RunHistory {
  // False: it is what was taken of this iteration before, shown once more because a new epoch has begun.
  // Otherwise it was done, or done again; then what was done behind it before is no longer true, and goes.
  bool Take(const v1::IterationSummary& iteration);

  // As the run has it in the end: an iteration that was done again is there once.
  std::vector<v1::IterationSummary> iterations;
  // Of a mixture: what was trained on.
  std::vector<TaskCounts> tasks;
  // The first iteration that was never shown.
  uint64_t furthest = 0;
};

}  // namespace penstock::cli
