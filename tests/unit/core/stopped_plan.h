// Plans that are stopped at a chosen look at their token.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/core/parallel/stop.h"
#include "planner/core/planner.h"
#include "tests/unit/core/random_job.h"

namespace penstock::core {

inline constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// Numbers below `end`: 0, 1, 5, 25, ..., and as far from the end, so that the first looks are among
// them, the last ones, and many in between.
inline std::vector<int64_t> GrowingUpTo(int64_t end) {
  std::vector<int64_t> numbers;
  for (int64_t number = 0; number < end; number = std::max(number + 1, 5 * number)) {
    numbers.push_back(number);
    numbers.push_back(end - 1 - number);
  }
  return numbers;
}

// Stages and plan of a job, with a flag that sets itself after so many looks.
inline absl::StatusOr<v1::Plan> PlanWith(const StopFlag& flag, const RandomPlanningCase& given,
                                         const RunTasks& run_tasks = RunSerially) {
  const auto planner = Planner::Create(given.job, Planner::Explain::kChanges, run_tasks, StopToken(&flag));
  if (!planner.ok()) return planner.status();
  return (*planner)->MakePlan(given.batch, run_tasks, StopToken(&flag));
}

}  // namespace penstock::core
