// Processes and servers that are killed while they commit: nothing that was acknowledged is lost, nothing is
// there in part.
#include <gtest/gtest.h>
#include <signal.h>

#include <functional>
#include <random>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/process/child_process.h"
#include "planner/service/store/open/open_event_store.h"
#include "tests/integration/store/commit_sequence.h"
#include "tests/support/postgres_server.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_folder.h"

namespace penstock {
namespace {

constexpr int kKills = 12;

class KillTest : public testing::Test {
 protected:
  // A process that commits; the numbers of its commits are in acknowledged().
  std::unique_ptr<ChildProcess> StartCommitting(const std::string& url) {
    std::filesystem::remove(folder_.Path("acknowledged"));
    auto child = ChildProcess::Start({.arguments = {PENSTOCK_COMMIT_LOOP, url},
                                      .log_path = folder_.Path("log"),
                                      .output_path = folder_.Path("acknowledged")});
    EXPECT_THAT(child, IsOk());
    return *std::move(child);
  }

  // The last commit that was acknowledged; 0: none.
  uint64_t acknowledged() const {
    const std::vector<std::string> lines = absl::StrSplit(folder_.Read("acknowledged"), '\n');
    uint64_t last = 0;
    if (lines.size() < 2 || !absl::SimpleAtoi(lines[lines.size() - 2], &last)) return 0;
    return last;
  }

  void WaitForCommits(ChildProcess* child, uint64_t commits) {
    const absl::Time deadline = absl::Now() + absl::Seconds(30);
    while (acknowledged() < commits && absl::Now() < deadline) {
      ASSERT_FALSE(child->WaitFor(absl::Milliseconds(2)).has_value()) << folder_.Read("log");
    }
    ASSERT_GE(acknowledged(), commits);
  }

  // What was acknowledged is there, and of what was not one commit at most.
  uint64_t CheckStore(const std::string& url) {
    const auto store = OpenEventStore(url, {.call_timeout = absl::Seconds(20)});
    EXPECT_THAT(store, IsOk());
    if (!store.ok()) return 0;
    const uint64_t commits = CheckCommits(store->get());
    EXPECT_GE(commits, acknowledged());
    EXPECT_LE(commits, acknowledged() + 1);
    return commits;
  }

  // A server finishes the last commit of a process that was killed: until then the store changes.
  static void WaitUntilNobodyIsConnected(const PostgresServer& server, const std::string& database) {
    const std::string others =
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> "
        "pg_backend_pid()";
    const absl::Time deadline = absl::Now() + absl::Seconds(30);
    while (absl::StripAsciiWhitespace(server.Sql(database, others)) != "0")
      ASSERT_LT(absl::Now(), deadline) << "somebody is still connected";
  }

  // Kills what commits, again and again, on one store; `settle` waits until nothing of it is under way.
  void KillAndCheck(const std::string& url, const std::function<void()>& settle) {
    uint64_t commits = 0;
    for (int kill = 0; kill < kKills && !HasFailure(); ++kill) {
      const auto child = StartCommitting(url);
      WaitForCommits(child.get(), commits + std::uniform_int_distribution<uint64_t>(1, 40)(random_));
      child->Signal(SIGKILL);
      ASSERT_TRUE(child->WaitFor(absl::Seconds(10)).has_value());
      settle();
      commits = CheckStore(url);
    }
  }

  const TemporaryFolder folder_;
  std::minstd_rand random_{17};
};

TEST_F(KillTest, AProcessThatIsKilledWhileItCommitsToAFileLosesNothing) {
  KillAndCheck("sqlite:" + folder_.Path("planner.db"), [] {});
}

TEST_F(KillTest, AProcessThatIsKilledWhileItCommitsToAServerLosesNothing) {
  if (const auto reason = PostgresServer::WhyNot()) GTEST_SKIP() << *reason;
  PostgresServer* server = PostgresServer::Shared();
  ASSERT_NE(server, nullptr);
  const std::string database = server->NewDatabase();
  KillAndCheck(server->Url(database), [&] { WaitUntilNobodyIsConnected(*server, database); });
}

TEST_F(KillTest, AServerThatIsKilledWhileAProcessCommitsLosesNothing) {
  if (const auto reason = PostgresServer::WhyNot()) GTEST_SKIP() << *reason;
  PostgresServer* server = PostgresServer::Shared();
  ASSERT_NE(server, nullptr);
  const std::string database = server->NewDatabase();
  const std::string url = server->Url(database);
  uint64_t commits = 0;
  for (int kill = 0; kill < 4 && !HasFailure(); ++kill) {
    const auto child = StartCommitting(url);
    WaitForCommits(child.get(), commits + std::uniform_int_distribution<uint64_t>(1, 40)(random_));
    server->Kill();
    ASSERT_THAT(server->Restart(), IsOk());
    // It goes on by itself, or gave up after its deadline.
    child->Stop(absl::Seconds(1));
    WaitUntilNobodyIsConnected(*server, database);
    commits = CheckStore(url);
  }
}

}  // namespace
}  // namespace penstock
