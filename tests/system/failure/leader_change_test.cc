// Two planners on one PostgreSQL while four workers train: the leader is killed again and again, the other
// takes over, and the result is that of a run that was left alone, bit for bit.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "tests/support/environment.h"
#include "tests/support/planner_pair.h"
#include "tests/support/postgres_fixture.h"
#include "tests/system/harness/cluster.h"
#include "tests/system/harness/tiny_job.h"

namespace penstock::testing {
namespace {

class LeaderChangeTest : public PostgresFixture {
 protected:
  void SetUp() override {
    PostgresFixture::SetUp();
    if (server_ == nullptr) return;
    planners_ = std::make_unique<PlannerPair>(PENSTOCK_BINARY_DIR "/penstock-planner", url_);
    planners_->Start();
    if (HasFatalFailure()) return;
    cluster_.UsePlanners(planners_->addresses());
    WriteTinyDataset(dataset_, samples_);
  }

  void Train(const std::string& id) {
    v1::JobSpec job = TinyJobOnFourRanks(id, iterations_);
    job.set_look_ahead_window(4096);
    cluster_.Register(job);
    cluster_.Submit(id, TinyBatches(samples_, 12, iterations_));
    cluster_.StartWorkers(job, {.dataset = dataset_});
  }

  // Kills the leader, and starts it again as a standby once the other has taken over.
  void KillLeader(const std::string& job_id) {
    const int leader = planners_->AwaitLeader();
    const absl::Time killed = absl::Now();
    planners_->process(leader).Signal(SIGKILL);
    const uint64_t completed = cluster_.Completed(job_id);
    answered_ms_.push_back(absl::ToInt64Milliseconds(absl::Now() - killed));
    cluster_.WaitForIterations(job_id, std::min(completed + 1, iterations_));
    trained_ms_.push_back(absl::ToInt64Milliseconds(absl::Now() - killed));
    EXPECT_EQ(planners_->AwaitLeader({1 - leader}), 1 - leader);
    planners_->Start(leader);
  }

  static int64_t Median(std::vector<int64_t> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
  }

  // PENSTOCK_KILLS: more, for measurements.
  const int kills_ = FromEnvironment("PENSTOCK_KILLS", 1);
  const uint64_t iterations_ = 30 * (kills_ + 1);
  const std::vector<TinySample> samples_ = TinySamples(36);
  std::unique_ptr<PlannerPair> planners_;
  Cluster cluster_;
  const std::string dataset_ = cluster_.folder().Path("data");
  // From each kill to the first answer about the job, and to one more iteration.
  std::vector<int64_t> answered_ms_;
  std::vector<int64_t> trained_ms_;
};

TEST_F(LeaderChangeTest, KillsOfTheLeaderChangeNothing) {
  Train("left-alone");
  cluster_.ExpectAllFinish();
  const std::vector<Figures> expected = cluster_.FiguresOf("left-alone");
  ASSERT_EQ(expected.size(), iterations_);

  Train("killed");
  for (int kill = 0; kill < kills_; ++kill) {
    cluster_.WaitForIterations("killed", 30 * kill + 10);
    KillLeader("killed");
    if (HasFatalFailure()) return;
  }
  cluster_.ExpectAllFinish();

  EXPECT_EQ(cluster_.FiguresOf("killed"), expected) << planners_->Logs();
  RecordProperty("median_answered_ms", static_cast<int>(Median(answered_ms_)));
  RecordProperty("median_trained_ms", static_cast<int>(Median(trained_ms_)));
  RecordProperty("longest_trained_ms",
                 static_cast<int>(*std::max_element(trained_ms_.begin(), trained_ms_.end())));
  EXPECT_LT(Median(trained_ms_), 10'000);
}

}  // namespace
}  // namespace penstock::testing
