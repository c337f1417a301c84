#include "common/process/child_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>

#include "common/process/log_tail.h"
#include "tests/support/temporary_folder.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

class ChildProcessTest : public ::testing::Test {
 protected:
  std::string Path(const std::string& name) const { return folder_.Path(name); }

  std::unique_ptr<ChildProcess> Shell(const std::string& script, ChildOptions options = {}) {
    options.arguments = {"sh", "-c", script};
    auto child = ChildProcess::Start(options);
    EXPECT_TRUE(child.ok()) << child.status();
    return *std::move(child);
  }

  // A shell that has said in its log that it is set up.
  std::unique_ptr<ChildProcess> ReadyShell(const std::string& set_up, const std::string& then) {
    const std::string fifo = Path("ready");
    EXPECT_EQ(mkfifo(fifo.c_str(), 0600), 0);
    auto child = Shell(set_up + "; echo ready > '" + fifo + "'; " + then);
    EXPECT_EQ(folder_.Read("ready"), "ready\n");
    std::filesystem::remove(fifo);
    return child;
  }

  const TemporaryFolder folder_;
};

TEST_F(ChildProcessTest, ReportsTheExitCode) {
  EXPECT_EQ(Shell("exit 7")->WaitFor(absl::Seconds(20))->code, 7);
  EXPECT_EQ(Shell("exit 7")->WaitFor(absl::Seconds(20))->ToString(), "exited with status 7");
  EXPECT_TRUE(Shell("exit 0")->WaitFor(absl::Seconds(20))->ok());
}

TEST_F(ChildProcessTest, ReportsTheSignalThatEndedIt) {
  const ExitStatus status = *Shell("kill -9 $$")->WaitFor(absl::Seconds(20));
  EXPECT_EQ(status.signal, SIGKILL);
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(status.ToString(), HasSubstr("signal 9"));
}

TEST_F(ChildProcessTest, GivesUpWaitingWhenTheTimeIsOver) {
  auto child = Shell("exec sleep 60");
  EXPECT_FALSE(child->Poll().has_value());
  EXPECT_FALSE(child->WaitFor(absl::Milliseconds(20)).has_value());
}

TEST_F(ChildProcessTest, WritesBothOutputsToTheLog) {
  ASSERT_TRUE(Shell("echo one; echo two >&2", {.log_path = Path("log")})->WaitFor(absl::Seconds(20))->ok());
  EXPECT_EQ(folder_.Read("log"), "one\ntwo\n");
}

TEST_F(ChildProcessTest, SeparatesTheOutputWhenAskedTo) {
  ASSERT_TRUE(Shell("echo one; echo two >&2", {.log_path = Path("log"), .output_path = Path("out")})
                  ->WaitFor(absl::Seconds(20))
                  ->ok());
  EXPECT_EQ(folder_.Read("out"), "one\n");
  EXPECT_EQ(folder_.Read("log"), "two\n");
}

TEST_F(ChildProcessTest, SetsEnvironmentAndWorkingDirectory) {
  ASSERT_TRUE(Shell("echo $PENSTOCK_TEST; pwd", {.environment = {{"PENSTOCK_TEST", "value"}},
                                                 .log_path = Path("log"),
                                                 .working_directory = folder_.path()})
                  ->WaitFor(absl::Seconds(20))
                  ->ok());
  EXPECT_EQ(folder_.Read("log"), "value\n" + folder_.path() + "\n");
}

TEST_F(ChildProcessTest, ChildReadsNothingFromStandardInput) {
  EXPECT_EQ(Shell("read line; exit $?")->WaitFor(absl::Seconds(20))->code, 1);
}

TEST_F(ChildProcessTest, StopEndsInOrderWhereTheChildAllowsIt) {
  auto child = ReadyShell("trap 'exit 3' TERM", "while :; do sleep 0.01; done");
  EXPECT_EQ(child->Stop(absl::Seconds(20)).code, 3);
}

TEST_F(ChildProcessTest, StopKillsAChildThatIgnoresTheRequest) {
  auto child = ReadyShell("trap '' TERM", "while :; do sleep 0.01; done");
  EXPECT_EQ(child->Stop(absl::Milliseconds(50)).signal, SIGKILL);
  EXPECT_EQ(child->Stop(absl::Milliseconds(50)).signal, SIGKILL);  // again: the same answer
}

TEST_F(ChildProcessTest, ChildDoesNotInheritABlockedSignal) {
  sigset_t term, before;
  sigemptyset(&term);
  sigaddset(&term, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &term, &before);
  auto child = Shell("exec sleep 60");
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  EXPECT_EQ(child->Stop(absl::Seconds(20)).signal, SIGTERM);
}

TEST_F(ChildProcessTest, DestructorEndsTheChild) {
  pid_t pid = 0;
  {
    auto child = Shell("exec sleep 60");
    pid = child->pid();
    ASSERT_EQ(kill(pid, 0), 0);
  }
  EXPECT_EQ(kill(pid, 0), -1);
}

TEST_F(ChildProcessTest, ChildEndsWithItsParent) {
  const std::string fifo = Path("lifeline");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const pid_t parent = fork();
  if (parent == 0) {
    // The grandchild holds the write end of the pipe; its end closes it.
    auto child = ChildProcess::Start({.arguments = {"sh", "-c", "exec sleep 60 > '" + fifo + "'"}});
    pause();
    _exit(0);
  }
  std::ifstream reader(fifo);  // opens when the grandchild has opened its end
  kill(parent, SIGKILL);
  waitpid(parent, nullptr, 0);
  EXPECT_EQ(reader.get(), std::ifstream::traits_type::eof());
}

TEST_F(ChildProcessTest, WaitForAnyNamesTheOneThatEnded) {
  auto first = Shell("exec sleep 60");
  auto second = Shell("exit 0");
  std::vector<ChildProcess*> children = {first.get(), second.get()};
  EXPECT_EQ(WaitForAny(children, absl::Seconds(20)), 1u);
  children.pop_back();
  EXPECT_EQ(WaitForAny(children, absl::Milliseconds(10)), std::nullopt);
}

TEST_F(ChildProcessTest, StopAllEndsObedientAndStubbornChildren) {
  auto obedient = Shell("exec sleep 60");
  auto stubborn = ReadyShell("trap '' TERM", "while :; do sleep 0.01; done");
  std::vector<ChildProcess*> children = {obedient.get(), stubborn.get()};
  StopAll(children, absl::Seconds(1));
  EXPECT_EQ(obedient->Poll()->signal, SIGTERM);
  EXPECT_EQ(stubborn->Poll()->signal, SIGKILL);
}

TEST_F(ChildProcessTest, WithSignalsOnStdinAChildReadsTheirNames) {
  auto started =
      ChildProcess::Start({.arguments = {"sh", "-c", "read -r first; read -r second; echo $first $second"},
                           .log_path = Path("log"),
                           .signals_on_stdin = true});
  ASSERT_TRUE(started.ok()) << started.status();
  ChildProcess& child = **started;
  child.Signal(SIGTERM);
  child.Signal(SIGUSR1);
  const std::optional<ExitStatus> ended = child.WaitFor(absl::Seconds(30));
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->code, 0) << "no signal was sent";
  EXPECT_EQ(LogTail(Path("log"), 1), "TERM USR1\n");
  child.Signal(SIGTERM);  // nobody reads it any more
}

TEST_F(ChildProcessTest, WithSignalsOnStdinAChildIsKilledAsEver) {
  auto started = ChildProcess::Start({.arguments = {"sleep", "60"}, .signals_on_stdin = true});
  ASSERT_TRUE(started.ok()) << started.status();
  EXPECT_EQ((*started)->Stop(absl::Milliseconds(100)).signal, SIGKILL);
}

TEST_F(ChildProcessTest, RefusesAnEmptyCommand) {
  EXPECT_EQ(ChildProcess::Start({}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ChildProcessTest, NamesAProgramThatDoesNotExist) {
  for (const std::string program : {"/no/such/program", "no-such-program"}) {
    const absl::Status status = ChildProcess::Start({.arguments = {program}}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
    EXPECT_THAT(std::string(status.message()), HasSubstr(program));
  }
}

TEST_F(ChildProcessTest, NamesALogThatCannotBeWritten) {
  const absl::Status status =
      ChildProcess::Start({.arguments = {"true"}, .log_path = Path("missing/log")}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("missing/log"));
}

TEST_F(ChildProcessTest, LogTailReturnsTheLastLines) {
  std::ofstream(Path("log")) << "one\ntwo\nthree\n";
  EXPECT_EQ(LogTail(Path("log"), 2), "two\nthree\n");
  EXPECT_EQ(LogTail(Path("log"), 9), "one\ntwo\nthree\n");
  EXPECT_EQ(LogTail(Path("log"), 3), "one\ntwo\nthree\n");
  EXPECT_EQ(LogTail(Path("missing"), 2), "");
}

}  // namespace
}  // namespace penstock
