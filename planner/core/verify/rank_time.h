// Where the time of each rank goes (execution.md, section 9), from the times that a plan has.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/core/verify/plan_index.h"

namespace penstock::core::verify {

struct RankTime {
  int64_t busy_ns = 0;
  int64_t fill_ns = 0;
  int64_t drain_ns = 0;
  int64_t dependency_ns = 0;
  int64_t transfer_ns = 0;
  int64_t imbalance_ns = 0;
  int64_t memory_ns = 0;
  int64_t group_ns = 0;
};

// By rank. Takes time linear in the plan.
std::vector<RankTime> ExplainTimes(const PlanIndex& index, int64_t makespan_ns);

}  // namespace penstock::core::verify
