// A plan that is made by several threads and stopped meanwhile. Apart from the other tests of stopping, which
// have one thread and would take thread sanitizer minutes.
#include <gtest/gtest.h>

#include <vector>

#include "common/parallel/task_pool.h"
#include "tests/unit/core/golden_jobs.h"
#include "tests/unit/core/stopped_plan.h"

namespace penstock::core {
namespace {

// The threads of a pool see the flag at different times.
TEST(StopThreadsTest, APlanOfSeveralThreadsIsCancelledOrWhole) {
  TaskPool pool(4);
  const std::vector<GoldenJob> jobs = GoldenJobs();
  for (size_t i = 0; i < jobs.size(); i += 12) {
    const StopFlag counted(kNever);
    const auto whole = PlanWith(counted, jobs[i].given);
    ASSERT_TRUE(whole.ok());
    for (const int64_t after : GrowingUpTo(kNever - counted.asks_left())) {
      const StopFlag flag(after);
      const auto plan = PlanWith(flag, jobs[i].given, pool.AsFunction());
      if (!plan.ok()) {
        EXPECT_EQ(plan.status().code(), absl::StatusCode::kCancelled) << plan.status();
      } else {
        EXPECT_EQ(plan->content_hash(), whole->content_hash());
      }
    }
  }
}

}  // namespace
}  // namespace penstock::core
