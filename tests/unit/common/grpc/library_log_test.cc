#include "common/grpc/library_log.h"

#include <grpc/support/log.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"

namespace penstock {
namespace {

TEST(LineLimitTest, CountsWhatItLeavesOut) {
  LineLimit limit(2, absl::Seconds(10));
  const absl::Time start = absl::UnixEpoch();
  EXPECT_EQ(limit.Take(start), 0u);
  EXPECT_EQ(limit.Take(start), 0u);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(limit.Take(start + absl::Seconds(9)), std::nullopt);
  EXPECT_EQ(limit.Take(start + absl::Seconds(10)), 5u);
  EXPECT_EQ(limit.Take(start + absl::Seconds(10)), 0u);
  EXPECT_EQ(limit.Take(start + absl::Seconds(10)), std::nullopt);
}

TEST(LibraryLogTest, AStrangersBytesAreQuotedAndDoNotFillTheLog) {
  LogWhatGrpcSays();
  testing::internal::CaptureStderr();
  for (int i = 0; i < 1000; ++i) gpr_log(GPR_ERROR, "%s", "bad\n2026 INFO forged \x1b[2J\xff");
  const std::string log = testing::internal::GetCapturedStderr();
  const std::vector<std::string> lines = absl::StrSplit(log, '\n', absl::SkipEmpty());
  EXPECT_EQ(lines.size(), 20);
  for (const std::string& line : lines) EXPECT_TRUE(absl::StrContains(line, "WARNING grpc says")) << line;
  EXPECT_FALSE(absl::StrContains(log, "\x1b"));
}

}  // namespace
}  // namespace penstock
