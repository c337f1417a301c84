#include "planner/cli/up/restart_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace penstock::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(RestartPolicy, ADeathIsMadeUpForAtOnceAndTheNextOnesLater) {
  RestartPolicy policy(10);
  EXPECT_EQ(*policy.OnDeath("worker-1"), absl::ZeroDuration());
  EXPECT_GT(*policy.OnDeath("worker-1"), absl::ZeroDuration());
  EXPECT_EQ(*policy.OnDeath("worker-2"), absl::ZeroDuration());
  EXPECT_TRUE(policy.HasDied("worker-2"));
  EXPECT_FALSE(policy.HasDied("worker-3"));
  policy.OnProgress();
  EXPECT_FALSE(policy.HasDied("worker-2"));
}

TEST(RestartPolicy, AProcessThatDiesAgainAndAgainWithoutProgressEndsTheRun) {
  RestartPolicy policy(10);
  EXPECT_TRUE(policy.OnDeath("worker-1").ok());
  EXPECT_TRUE(policy.OnDeath("worker-1").ok());
  const absl::Status status = policy.OnDeath("worker-1").status();
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("worker-1"), HasSubstr("3 times")));
}

TEST(RestartPolicy, ProgressForgivesDeathsButTheRunHasALimit) {
  RestartPolicy policy(5);
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(policy.OnDeath("planner").ok());
    policy.OnProgress();
  }
  const absl::Status status = policy.OnDeath("planner").status();
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("planner"), HasSubstr("--max-restarts 5")));
  EXPECT_EQ(policy.restarts(), 5u);
}

}  // namespace
}  // namespace penstock::cli
