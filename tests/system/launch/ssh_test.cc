// `penstock up --hosts` over a real sshd on loopback, with keys of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/support/ssh_server.h"
#include "tests/system/up/up_fixture.h"

namespace penstock {
namespace {

using testing::HasSubstr;

class SshTest : public UpTest {
 protected:
  void SetUp() override {
    if (const auto reason = SshServer::WhyNot(); !reason.empty()) GTEST_SKIP() << reason;
    auto server = SshServer::Start();
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    ASSERT_NO_FATAL_FAILURE(Import(RepositoryText(), Dataset()));
    ASSERT_NO_FATAL_FAILURE(TakeProfile(OnHosts({})));
  }

  // Two hosts, which are this machine by two names.
  std::vector<std::string> OnHosts(std::vector<std::string> more) const {
    const std::string hosts = folder_.Write("hosts", "127.0.0.1 slots=2\nlocalhost slots=2\n");
    more.insert(more.end(), {"--hosts", hosts, "--ssh", server_->Client()});
    return UpArguments(more);
  }

  // The worker itself: its command line is also that of what started it.
  void KillWorker(int rank) {
    for (const pid_t pid : ProcessesOf(RunDir(), absl::StrCat("--rank=", rank))) {
      std::error_code gone;
      const auto program = std::filesystem::read_symlink(absl::StrCat("/proc/", pid, "/exe"), gone);
      if (program.filename() != "penstock-worker") continue;
      kill(pid, SIGKILL);
      return;
    }
    FAIL() << "no worker of rank " << rank;
  }

  // Blocks until no process of a worker is left.
  void ExpectNoWorkers() {
    const absl::Time deadline = absl::Now() + absl::Seconds(30);
    while (!WorkersOf(RunDir()).empty() && absl::Now() < deadline) absl::SleepFor(kPoll);
    EXPECT_TRUE(WorkersOf(RunDir()).empty());
  }

  std::unique_ptr<SshServer> server_;
};

TEST_F(SshTest, ARunTrainsOnItsHostsAndItsLogsComeBack) {
  PenstockRun run(folder_, "up", OnHosts({"--iterations", "6"}));
  ASSERT_EQ(run.Wait(), 0) << run.errors();
  EXPECT_THAT(run.output() + run.errors(), HasSubstr("worker-0 is started by: ssh "));
  for (int rank = 0; rank < 4; ++rank) {
    const std::string log = ReadFile(absl::StrCat(RunDir(), "/logs/worker-", rank, ".log")).value_or("");
    EXPECT_THAT(log, HasSubstr(absl::StrCat("rank=", rank))) << rank;
  }
  ExpectNoWorkers();
}

TEST_F(SshTest, ALostConnectionAndADeadWorkerAreReplaced) {
  PenstockRun run(folder_, "up", OnHosts({"--iterations", "60", "--checkpoint-every", "5"}));
  run.WaitForText("iteration 6/59");
  KillWorker(3);
  run.WaitForText("worker-3 exited with status 137: starting it again");
  run.WaitForText("iteration 12/59");
  server_->CutAConnection();
  run.WaitForText("exited with status 255: starting it again");
  ASSERT_EQ(run.Wait(), 0) << run.errors();
  ExpectNoWorkers();
}

TEST_F(SshTest, CtrlCReachesTheWorkersWhichWriteACheckpoint) {
  PenstockRun run(folder_, "up", OnHosts({"--iterations", "2000"}));
  run.WaitForText("iteration 3/1999");
  run.process().Signal(SIGINT);
  EXPECT_EQ(run.Wait(), 1);
  EXPECT_THAT(run.output() + run.errors(), HasSubstr("goes on from the last checkpoint"));
  ExpectNoWorkers();
}

TEST_F(SshTest, WhenTheLauncherIsKilledNoWorkerStays) {
  PenstockRun run(folder_, "up", OnHosts({"--iterations", "2000"}));
  run.WaitForText("iteration 1/1999");
  run.process().Signal(SIGKILL);
  run.Wait();
  ExpectNoWorkers();
}

TEST_F(SshTest, AHostThatIsNotThereIsNamed) {
  std::vector<std::string> arguments = UpArguments({"--iterations", "6", "--max-restarts", "0", "--hosts",
                                                    folder_.Write("hosts", "127.0.0.1 slots=4\n"), "--ssh",
                                                    "ssh -F none -p 1 -o StrictHostKeyChecking=no"});
  PenstockRun run(folder_, "up", arguments);
  EXPECT_EQ(run.Wait(), 1);
  EXPECT_THAT(run.errors(), HasSubstr("127.0.0.1 port 1"));
}

}  // namespace
}  // namespace penstock
