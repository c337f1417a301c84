// A computation of the core that is stopped ends with CANCELLED, wherever it is; and whoever holds a token
// that is not set gets what he would get without.
#include "planner/core/parallel/stop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "planner/core/planner.h"
#include "planner/core/verify/check_plan.h"
#include "tests/unit/core/golden_jobs.h"
#include "tests/unit/core/job_builder.h"
#include "tests/unit/core/stopped_plan.h"

namespace penstock::core {
namespace {

TEST(StopTest, ATokenWithoutAFlagNeverStops) {
  EXPECT_FALSE(StopToken().stopped());
  EXPECT_TRUE(StopToken().status().ok());
}

TEST(StopTest, AFlagThatIsSetStaysSet) {
  StopFlag flag;
  EXPECT_FALSE(StopToken(&flag).stopped());
  flag.Set();
  EXPECT_TRUE(StopToken(&flag).stopped());
  EXPECT_EQ(StopToken(&flag).status().code(), absl::StatusCode::kCancelled);
}

TEST(StopTest, DuringAPauseTheThreadWaitsWhereItAsks) {
  StopFlag flag;
  flag.Pause();
  std::atomic<bool> asked = false;
  std::thread computing([&] {
    const PausesHere pauses(&flag);
    EXPECT_FALSE(StopToken(&flag).stopped());
    asked = true;
  });
  // Nobody who helps waits.
  EXPECT_FALSE(StopToken(&flag).stopped());
  for (int i = 0; i < 1000; ++i) std::this_thread::yield();
  EXPECT_FALSE(asked);
  flag.Resume();
  computing.join();
  EXPECT_TRUE(asked);
}

TEST(StopTest, AStopEndsAPause) {
  StopFlag flag;
  flag.Pause();
  std::thread computing([&] {
    const PausesHere pauses(&flag);
    EXPECT_TRUE(StopToken(&flag).stopped());
  });
  flag.Set();
  computing.join();
}

TEST(StopTest, APlanThatIsStoppedAnywhereIsCancelled) {
  for (const GoldenJob& job : JobsToRepeat()) {
    const StopFlag counted(kNever);
    const auto whole = PlanWith(counted, job.given);
    ASSERT_TRUE(whole.ok()) << job.name << ": " << whole.status();
    const int64_t looks = kNever - counted.asks_left();
    for (const int64_t after : GrowingUpTo(looks)) {
      const StopFlag flag(after);
      EXPECT_EQ(PlanWith(flag, job.given).status().code(), absl::StatusCode::kCancelled)
          << job.name << " after " << after << " of " << looks << " looks";
    }
    // At the last look of all nothing is left to do, and nobody sees the flag any more.
    const StopFlag late(looks);
    const auto plan = PlanWith(late, job.given);
    ASSERT_TRUE(plan.ok()) << job.name << ": " << plan.status();
    EXPECT_EQ(plan->content_hash(), whole->content_hash()) << job.name;
  }
}

TEST(StopTest, StagesThatAreChosenAreStoppedToo) {
  RandomPlanningCase given = {GptJob(4, 2, v1::POLICY_DYNAMIC), MakeBatch({{100, 100}, {30, 30}, {10, 10}})};
  for (uint32_t i = 0; i < 64; ++i) {
    given.job.mutable_planning()->add_typical_samples()->set_target_tokens(20 + 37 * i % 300);
  }
  const StopFlag counted(kNever);
  ASSERT_TRUE(PlanWith(counted, given).ok());
  const int64_t looks = kNever - counted.asks_left();
  for (const int64_t after : GrowingUpTo(looks)) {
    const StopFlag flag(after);
    EXPECT_EQ(PlanWith(flag, given).status().code(), absl::StatusCode::kCancelled) << after;
  }
}

// A refusal that looks for the smallest changes that fit.
TEST(StopTest, ARefusalThatIsStoppedIsCancelled) {
  RandomPlanningCase given = {GptJob(2, 2, v1::POLICY_DYNAMIC), MakeBatch({{1000, 1000}, {10, 10}})};
  const auto planner = Planner::Create(given.job);
  ASSERT_TRUE(planner.ok());
  given.job.mutable_planning()->set_memory_limit_bytes((*planner)->costs().RankStaticBytes(0) + 100'000);
  const StopFlag counted(kNever);
  const absl::Status refused = PlanWith(counted, given).status();
  ASSERT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
  ASSERT_THAT(std::string(refused.message()), testing::HasSubstr("fit"));
  const int64_t looks = kNever - counted.asks_left();
  for (const int64_t after : GrowingUpTo(looks)) {
    const StopFlag flag(after);
    EXPECT_EQ(PlanWith(flag, given).status().code(), absl::StatusCode::kCancelled)
        << "after " << after << " of " << looks;
  }
}

TEST(StopTest, ACheckThatIsStoppedIsCancelled) {
  const RandomPlanningCase given = GoldenJobs().front().given;
  const auto planner = Planner::Create(given.job);
  ASSERT_TRUE(planner.ok());
  const auto plan = (*planner)->MakePlan(given.batch);
  ASSERT_TRUE(plan.ok());
  const StopFlag counted(kNever);
  ASSERT_TRUE(CheckPlan(given.batch, *plan, StopToken(&counted)).ok());
  for (const int64_t after : GrowingUpTo(kNever - counted.asks_left())) {
    const StopFlag flag(after);
    EXPECT_EQ(CheckPlan(given.batch, *plan, StopToken(&flag)).status().code(), absl::StatusCode::kCancelled);
  }
}

}  // namespace
}  // namespace penstock::core
