#include "planner/cli/up/up_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace penstock::cli {
namespace {

using testing::HasSubstr;

TEST(UpOptionsTest, TheDefaultsMakeAJob) {
  const auto job = MakeJobSpec(UpOptions(), 64);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->planning().policy(), v1::POLICY_DYNAMIC);
}

TEST(UpOptionsTest, APolicyThatTheWorkersCannotRunIsRefusedByItsFlag) {
  UpOptions options;
  options.policy = v1::POLICY_CONCATENATED;
  const auto job = MakeJobSpec(options, 64);
  EXPECT_EQ(job.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(job.status().message()), HasSubstr("--policy concatenated"));
}

TEST(UpOptionsTest, AsksForWhatTheWorkersRun) {
  const auto job = MakeJobSpec(UpOptions(), 100);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->planning().schedule(), v1::SCHEDULE_ONE_FORWARD_ONE_BACKWARD);
  EXPECT_EQ(job->planning().stage_split(), v1::STAGE_SPLIT_EVEN);
}

TEST(UpOptionsTest, TakesTheOtherScheduleThatTheWorkersRun) {
  UpOptions options;
  options.planning.schedule = v1::SCHEDULE_READY_FIRST;
  EXPECT_TRUE(MakeJobSpec(options, 100).ok());
}

TEST(UpOptionsTest, RefusesSchedulesThatTheWorkersDoNotRun) {
  for (const v1::Schedule schedule :
       {v1::SCHEDULE_AUTO, v1::SCHEDULE_SPLIT_BACKWARD, v1::SCHEDULE_INTERLEAVED}) {
    UpOptions options;
    options.planning.schedule = schedule;
    const absl::Status status = MakeJobSpec(options, 100).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("--schedule " + ScheduleName(schedule)));
    EXPECT_THAT(std::string(status.message()), HasSubstr("use 1f1b or ready-first"));
  }
}

TEST(UpOptionsTest, RefusesSeveralStagesOnAWorker) {
  UpOptions options;
  options.pipeline = 2;
  options.planning.layers_per_stage = {1, 1, 1, 1};
  options.planning.rank_of_stage = {0, 1, 1, 0};
  const absl::Status status = MakeJobSpec(options, 100).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("--rank-of-stage"));
}

}  // namespace
}  // namespace penstock::cli
