// Training over several hosts: limited links, and cables that are pulled and plugged again.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/support/status_matchers.h"
#include "tests/system/harness/cluster.h"
#include "tests/system/harness/tiny_job.h"
#include "tests/system/hosts/host_network.h"

namespace penstock::testing {
namespace {

constexpr int kWorkers = 4;
constexpr int kPlanner = kWorkers;
constexpr uint64_t kIterations = 60;
constexpr uint32_t kHeartbeatTimeoutMs = 2000;

// Four workers on a host each, the planner on a fifth.
class HostsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto network = HostNetwork::Create(kWorkers + 1);
    if (!network.ok()) GTEST_SKIP() << network.status();
    network_ = *std::move(network);
    cluster_.emplace(ClusterOptions{.planner = network_->PlaceOf(kPlanner)});
    dataset_ = cluster_->folder().Path("data");
    WriteTinyDataset(dataset_, samples_);
    cluster_->StartPlanner();
  }

  static v1::JobSpec Job(const std::string& id, uint32_t heartbeat_timeout_ms) {
    v1::JobSpec job = TinyJobOnFourRanks(id, kIterations);
    job.mutable_training()->set_checkpoint_interval(10);
    job.set_look_ahead_window(4096);
    job.set_heartbeat_timeout_ms(heartbeat_timeout_ms);
    return job;
  }

  void Start(const std::string& id, bool on_hosts, uint32_t heartbeat_timeout_ms = kHeartbeatTimeoutMs) {
    WorkerSettings settings = {.dataset = dataset_, .checkpoint_dir = cluster_->folder().Path(id)};
    for (int rank = 0; rank < kWorkers; ++rank) {
      // Not on a host: beside the switch, where no cable is pulled.
      settings.places.push_back(on_hosts ? network_->PlaceOf(rank)
                                         : Place{.launcher = {}, .address = "10.77.0.254"});
    }
    const v1::JobSpec job = Job(id, heartbeat_timeout_ms);
    cluster_->Register(job);
    cluster_->Submit(id, TinyBatches(samples_, 12, kIterations));
    cluster_->StartWorkers(job, settings);
  }

  // Those of a run on this host alone, which the first test that asks for them makes.
  const std::vector<Figures>& Undisturbed() {
    static const std::vector<Figures> figures = [this] {
      Start("undisturbed", /*on_hosts=*/false);
      cluster_->ExpectAllFinish();
      return cluster_->FiguresOf("undisturbed");
    }();
    return figures;
  }

  const std::vector<TinySample> samples_ = TinySamples(36);
  std::unique_ptr<HostNetwork> network_;
  std::optional<Cluster> cluster_;
  std::string dataset_;
};

TEST_F(HostsTest, FourHostsTrainOverLimitedLinks) {
  for (int host = 0; host < kWorkers; ++host) ASSERT_THAT(network_->Limit(host, "20mbit"), IsOk());
  Start("limited", /*on_hosts=*/true);
  cluster_->ExpectAllFinish();
  EXPECT_EQ(cluster_->FiguresOf("limited"), Undisturbed());
}

TEST_F(HostsTest, AShortPartitionOfThePlannerStopsNobody) {
  // Much longer than the partition: TCP waits twice as long for each time that it sends again.
  Start("planner-away", /*on_hosts=*/true, /*heartbeat_timeout_ms=*/10'000);
  cluster_->WaitForIterations("planner-away", 3);
  ASSERT_THAT(network_->Pull(kPlanner), IsOk());
  cluster_->planner().WaitFor(absl::Seconds(1));
  ASSERT_THAT(network_->Plug(kPlanner), IsOk());
  cluster_->ExpectAllFinish();
  EXPECT_EQ(cluster_->Epoch("planner-away"), 1);
  EXPECT_EQ(cluster_->FiguresOf("planner-away"), Undisturbed());
}

// What is cut off, and for how long the test must wait until it is noticed.
struct Partition {
  const char* name;
  std::vector<int> hosts;
};

class PartitionTest : public HostsTest, public ::testing::WithParamInterface<Partition> {};

TEST_P(PartitionTest, TrainingGoesOnFromTheCheckpointWhenTheCableIsPluggedAgain) {
  Start("cut", /*on_hosts=*/true);
  cluster_->WaitForIterations("cut", 15);
  for (const int host : GetParam().hosts) ASSERT_THAT(network_->Pull(host), IsOk());
  cluster_->planner().WaitFor(absl::Milliseconds(2 * kHeartbeatTimeoutMs));
  for (const int host : GetParam().hosts) ASSERT_THAT(network_->Plug(host), IsOk());
  const absl::Time plugged = absl::Now();
  cluster_->WaitForIterationAfterEpoch("cut", 1);
  RecordProperty("again_after_ms", static_cast<int>(absl::ToInt64Milliseconds(absl::Now() - plugged)));
  cluster_->ExpectAllFinish();
  EXPECT_EQ(cluster_->FiguresOf("cut"), Undisturbed());
}

INSTANTIATE_TEST_SUITE_P(Cut, PartitionTest,
                         ::testing::Values(Partition{"OneWorker", {2}}, Partition{"HalfTheWorkers", {0, 1}},
                                           Partition{"ThePlanner", {kPlanner}}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace penstock::testing
