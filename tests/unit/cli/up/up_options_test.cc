#include "planner/cli/up/up_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace penstock::cli {
namespace {

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
  EXPECT_THAT(std::string(job.status().message()), testing::HasSubstr("--policy concatenated"));
}

}  // namespace
}  // namespace penstock::cli
