#include "common/version/version.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/files/files.h"
#include "common/process/child_process.h"
#include "tests/support/temporary_folder.h"

namespace penstock {
namespace {

using ::testing::MatchesRegex;

TEST(Version, IsThatOfTheProjectWithTheCommit) {
  EXPECT_EQ(Version(), PENSTOCK_PROJECT_VERSION);
  EXPECT_THAT(std::string(Commit()), MatchesRegex("[0-9a-f]+(-dirty)?|unknown"));
  EXPECT_EQ(VersionOf("penstock"), absl::StrCat("penstock ", Version(), " (", Commit(), ")"));
}

class WriteVersionTest : public ::testing::Test {
 protected:
  // Of a folder that is no repository; `commit` is PENSTOCK_COMMIT.
  void Write(const std::string& commit) const {
    const std::vector<std::string> command = {
        PENSTOCK_CMAKE,
        absl::StrCat("-DSOURCE=", folder_.path()),
        "-DVERSION=1.2.3",
        absl::StrCat("-DTEMPLATE=", PENSTOCK_SOURCE_DIR, "/common/version/version.cc.in"),
        absl::StrCat("-DOUT=", Out()),
        "-P",
        absl::StrCat(PENSTOCK_SOURCE_DIR, "/cmake/WriteVersion.cmake")};
    const auto process = ChildProcess::Start({.arguments = command,
                                              .environment = {{"PENSTOCK_COMMIT", commit}},
                                              .log_path = folder_.Path("log")});
    ASSERT_TRUE(process.ok()) << process.status();
    const std::optional<ExitStatus> ended = (*process)->WaitFor(absl::Seconds(60));
    ASSERT_TRUE(ended.has_value() && ended->ok()) << ReadFile(folder_.Path("log")).value_or("");
  }

  std::string Out() const { return folder_.Path("version.cc"); }
  std::string Written() const { return ReadFile(Out()).value_or(""); }

  const TemporaryFolder folder_;
};

TEST_F(WriteVersionTest, TakesTheCommitOfTheEnvironmentWhereThereIsNoRepository) {
  Write("");
  EXPECT_THAT(Written(), ::testing::HasSubstr("return \"unknown\""));
  Write("22e1b93c0a1b");
  EXPECT_THAT(Written(), ::testing::HasSubstr("return \"1.2.3\""));
  EXPECT_THAT(Written(), ::testing::HasSubstr("return \"22e1b93c0a1b\""));
}

TEST_F(WriteVersionTest, LeavesAFileThatSaysSoAlready) {
  Write("22e1b93c0a1b");
  const auto long_ago = std::filesystem::last_write_time(Out()) - std::chrono::hours(1);
  std::filesystem::last_write_time(Out(), long_ago);
  Write("22e1b93c0a1b");
  EXPECT_EQ(std::filesystem::last_write_time(Out()), long_ago) << "everything would be linked again";
}

}  // namespace
}  // namespace penstock
