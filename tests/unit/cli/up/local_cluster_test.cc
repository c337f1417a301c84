#include "planner/cli/up/local_cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/secret/incarnation.h"
#include "tests/support/temporary_folder.h"

namespace penstock::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

class LocalClusterTest : public testing::Test {
 protected:
  // Workers that do what the script says; $rank is "--rank=N".
  LocalCluster StartWorkers(const std::string& script, uint32_t workers) {
    const std::string worker = folder_.Write(
        "penstock-worker", "#!/bin/sh\nfor rank; do case $rank in --rank=*) break;; esac; done\n" + script);
    std::filesystem::permissions(worker, std::filesystem::perms::owner_all);
    LocalCluster cluster({.bin_dir = folder_.path(), .log_dir = folder_.path()});
    const absl::Status started = cluster.StartWorkers({.planner_address = "127.0.0.1:1",
                                                       .job_id = "job",
                                                       .workers = workers,
                                                       .dataset = "",
                                                       .checkpoint_dir = ""});
    EXPECT_TRUE(started.ok()) << started;
    return cluster;
  }
  // Blocks until so many workers have written "ready" into their logs.
  void AwaitReady(uint32_t workers) {
    const absl::Time deadline = absl::Now() + absl::Seconds(20);
    for (uint32_t rank = 0; rank < workers; ++rank) {
      while (folder_.Read("worker-" + std::to_string(rank) + ".log").empty() && absl::Now() < deadline) {
      }
    }
  }

  TemporaryFolder folder_;
};

constexpr char kDeafToSigterm[] = "trap '' TERM\necho ready\nexec sleep 60\n";

TEST_F(LocalClusterTest, HungWorkersShareOneGrace) {
  constexpr uint32_t kWorkers = 8;
  LocalCluster cluster = StartWorkers(kDeafToSigterm, kWorkers);
  AwaitReady(kWorkers);
  const absl::Time begin = absl::Now();
  cluster.Stop(absl::Seconds(1));
  EXPECT_TRUE(cluster.WorkersEnded());
  EXPECT_LT(absl::Now() - begin, absl::Seconds(6));
}

TEST_F(LocalClusterTest, AnEndIsReadableUntilItIsSeen) {
  LocalCluster cluster = StartWorkers("case $rank in --rank=0) exit 0;; esac\nexec sleep 60\n", 2);
  ASSERT_EQ(cluster.EndDescriptors().size(), 2U);
  pollfd first = {.fd = cluster.EndDescriptors()[0], .events = POLLIN, .revents = 0};
  EXPECT_EQ(poll(&first, 1, 20'000), 1);
  EXPECT_EQ(cluster.EndDescriptors().size(), 2U);
  EXPECT_TRUE(cluster.Check().ok());
  ASSERT_EQ(cluster.EndDescriptors().size(), 1U);
  pollfd other = {.fd = cluster.EndDescriptors()[0], .events = POLLIN, .revents = 0};
  EXPECT_EQ(poll(&other, 1, 0), 0);
}

TEST_F(LocalClusterTest, WorkersAreKnownByIncarnationsThatNobodyElseCanMake) {
  LocalCluster cluster = StartWorkers("echo \"key $PENSTOCK_INCARNATION_KEY\"\nexec sleep 60\n", 2);
  AwaitReady(2);
  const auto key_of = [&](int rank) {
    std::string log = folder_.Read(absl::StrCat("worker-", rank, ".log"));
    return log.substr(log.rfind("key ") + 4, 64);
  };
  const uint64_t third = IncarnationOf(key_of(1), 2);
  EXPECT_EQ(cluster.IncarnationOf(1, IncarnationDigest(third)), third);
  EXPECT_EQ(cluster.IncarnationOf(0, IncarnationDigest(third)), std::nullopt);
  EXPECT_EQ(cluster.IncarnationOf(1, third), std::nullopt);
  EXPECT_EQ(cluster.IncarnationOf(7, third), std::nullopt);
  ASSERT_TRUE(cluster.KillWorker(1));
  while (cluster.IsRunning(1)) {
  }
  ASSERT_TRUE(cluster.Restart("worker-1").ok());
  EXPECT_EQ(cluster.IncarnationOf(1, IncarnationDigest(third)), std::nullopt) << "it is another process";
}

TEST_F(LocalClusterTest, EachWorkerIsToldItsGpu) {
  const LocalCluster cluster({.bin_dir = folder_.path(), .log_dir = folder_.path()});
  LocalWorkerOptions options = {
      .planner_address = "127.0.0.1:1", .job_id = "job", .workers = 2, .dataset = "", .checkpoint_dir = ""};
  EXPECT_THAT(cluster.DescribeWorker(options, 1), Not(HasSubstr("--device")));
  options.gpus = {4, 2};
  EXPECT_THAT(cluster.DescribeWorker(options, 0), HasSubstr(" --device=cuda:4"));
  EXPECT_THAT(cluster.DescribeWorker(options, 1), HasSubstr(" --device=cuda:2"));
}

TEST_F(LocalClusterTest, NamesTheWorkersThatStillRun) {
  LocalCluster cluster = StartWorkers("[ $rank = --rank=1 ] && exit 0\nexec sleep 60\n", 3);
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (cluster.IsRunning(1) && absl::Now() < deadline) {
  }
  EXPECT_EQ(cluster.NamesOfRunningWorkers(), "worker-0, worker-2");
  EXPECT_FALSE(cluster.WorkersEnded());
  EXPECT_FALSE(cluster.IsRunning(3));
}

}  // namespace
}  // namespace penstock::cli
