#include "tests/unit/core/sound_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/core/audit/audit_plan.h"
#include "planner/core/strategies/strategy_planner.h"
#include "planner/core/verify/check_plan.h"

namespace penstock::core {

using ::testing::IsEmpty;

v1::Plan SoundPlanOf(const v1::JobSpec& job, const v1::Batch& batch) {
  const auto planner = StrategyPlanner::Create(job, Planner::Explain::kCauseAlone);
  EXPECT_TRUE(planner.ok()) << planner.status();
  const absl::StatusOr<v1::Plan> plan = (*planner)->MakePlan(batch);
  EXPECT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(CheckPlan(batch, *plan), IsEmpty());
  EXPECT_THAT(*AuditPlan(batch, *plan, job.profile()), IsEmpty());
  EXPECT_LE(plan->lower_bound_ns(), plan->predicted().makespan_ns());
  return *plan;
}

}  // namespace penstock::core
