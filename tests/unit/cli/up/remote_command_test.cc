// The command runs as over ssh, whose place a shell script takes that forgets the host.
#include "planner/cli/up/remote_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/time/clock.h"
#include "common/process/child_process.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_folder.h"

namespace penstock::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr absl::Duration kRemoteDeadline = absl::Seconds(30);

constexpr char kSecretValue[] = "not for $(everybody)";

class RemoteCommandTest : public testing::Test {
 protected:
  // Of a shell script.
  std::unique_ptr<ChildProcess> Start(const std::string& script, const std::string& secret = "") {
    const std::string ssh =
        folder_.Write("ssh", "#!/bin/sh\nwhile [ $# -gt 1 ]; do shift; done\nexec sh -c \"$1\"\n");
    std::filesystem::permissions(ssh, std::filesystem::perms::owner_all);
    auto process = ChildProcess::Start(
        {.arguments = RemoteCommand({ssh}, "host", {"sh", "-c", script, "it's", folder_.path()}, secret),
         .log_path = folder_.Path("log"),
         .signals_on_stdin = true,
         .first_line = secret.empty() ? "" : kSecretValue});
    EXPECT_THAT(process, IsOk());
    return process.ok() ? *std::move(process) : nullptr;
  }

  // Blocks until the file is there and whole.
  std::string Await(const std::string& name) {
    const absl::Time deadline = absl::Now() + kRemoteDeadline;
    while (absl::Now() < deadline && !folder_.Read(name).ends_with('\n'))
      absl::SleepFor(absl::Milliseconds(5));
    return folder_.Read(name);
  }

  TemporaryFolder folder_;
};

TEST_F(RemoteCommandTest, RunsTheProgramAndItsOutputAndStatusComeBack) {
  const auto process = Start(R"(echo "$0 here"; echo there >&2; cat; exit 7)");
  const auto ended = process->WaitFor(kRemoteDeadline);
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->code, 7);
  EXPECT_EQ(folder_.Read("log"), "it's here\nthere\n") << "and the program reads nothing";
}

TEST_F(RemoteCommandTest, SignalsReachTheProgram) {
  const auto process =
      Start(R"(trap 'echo stopped; exit 3' TERM; echo $$ > "$1/ready"; while :; do sleep 0.01; done)");
  Await("ready");
  process->Signal(SIGTERM);
  const auto ended = process->WaitFor(kRemoteDeadline);
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->code, 3);
  EXPECT_THAT(folder_.Read("log"), HasSubstr("stopped"));
}

TEST_F(RemoteCommandTest, ASecretIsInTheProgramsEnvironmentAndInNoCommandLineAndSignalsStillReachIt) {
  const auto process =
      Start(R"(trap 'exit 3' TERM; echo "$SECRET"; tr '\0' ' ' < /proc/$PPID/cmdline > "$1/line"; )"
            R"(echo > "$1/ready"; while :; do sleep 0.01; done)",
            "SECRET");
  Await("ready");
  process->Signal(SIGTERM);
  const auto ended = process->WaitFor(kRemoteDeadline);
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->code, 3);
  EXPECT_EQ(folder_.Read("log"), std::string(kSecretValue) + "\n");
  EXPECT_THAT(folder_.Read("line"), HasSubstr("SECRET"));
  EXPECT_THAT(folder_.Read("line"), testing::Not(HasSubstr(kSecretValue)));
}

TEST_F(RemoteCommandTest, TheProgramDoesNotOutliveTheConnection) {
  const auto process = Start(R"(trap '' TERM; echo $$ > "$1/ready"; while :; do sleep 0.01; done)");
  int pid = 0;
  ASSERT_TRUE(absl::SimpleAtoi(Await("ready"), &pid));
  process->Signal(SIGKILL);
  ASSERT_TRUE(process->WaitFor(kRemoteDeadline).has_value());
  const absl::Time deadline = absl::Now() + kRemoteDeadline;
  // A program that has ended has no executable any more, be it gone (ENOENT), about to go (ESRCH) or waiting
  // for init.
  const auto runs = [&] {
    std::error_code error;
    return std::filesystem::exists("/proc/" + std::to_string(pid) + "/exe", error);
  };
  while (runs() && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(5));
  EXPECT_FALSE(runs());
}

TEST(RemoteCommandLine, IsOneWordForTheShellOfTheHost) {
  const std::vector<std::string> words =
      RemoteCommand({"ssh", "-p", "2222"}, "node-a", {"worker", "--a=b c"});
  EXPECT_THAT(std::vector<std::string>(words.begin(), words.begin() + 3), ElementsAre("ssh", "-p", "2222"));
  EXPECT_EQ(words[words.size() - 2], "node-a");
  EXPECT_THAT(words.back(), HasSubstr("'worker' '--a=b c'"));
  EXPECT_THAT(words, testing::Contains("BatchMode=yes"));
  EXPECT_EQ(ShellWord("it's"), R"('it'\''s')");
}

}  // namespace
}  // namespace penstock::cli
