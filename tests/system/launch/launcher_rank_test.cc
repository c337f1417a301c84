// Workers that know the planner's address and their job alone: whatever launched them says their ranks.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/system/harness/cluster.h"
#include "tests/system/harness/tiny_job.h"

namespace penstock::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class LauncherRankSystemTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kIterations = 3;

  void SetUp() override {
    job_.mutable_mesh()->set_pipeline(2);
    job_.mutable_training()->set_iterations(kIterations);
    WriteTinyDataset(cluster_.folder().Path("data"), samples_);
    cluster_.StartPlanner();
    cluster_.Register(job_);
    cluster_.Submit(job_.job_id(), TinyBatches(samples_, 12, kIterations));
  }

  WorkerSettings Settings(const std::string& variable) const {
    return {.dataset = cluster_.folder().Path("data"), .rank_variable = variable};
  }

  // Of a worker that no rank waits for.
  void ExpectRefused(uint32_t rank, const std::string& reason) {
    const std::string log = cluster_.folder().Path("refused.log");
    const std::unique_ptr<ChildProcess> worker =
        cluster_.StartWorker(job_, rank, Settings("JOB_COMPLETION_INDEX"), log);
    ASSERT_NE(worker, nullptr);
    const auto ended = worker->WaitFor(Cluster::kDeadline);
    ASSERT_TRUE(ended.has_value());
    EXPECT_EQ(ended->code, 2) << "starting it again would end the same";
    EXPECT_THAT(cluster_.folder().Read("refused.log"),
                AllOf(HasSubstr(absl::StrCat("JOB_COMPLETION_INDEX ", rank)), HasSubstr(reason)));
  }

  const std::vector<TinySample> samples_ = TinySamples(36);
  v1::JobSpec job_ = TinyJob();
  Cluster cluster_;
};

TEST_F(LauncherRankSystemTest, AJobTrainsWithRanksThatTheLauncherGave) {
  cluster_.StartWorkers(job_, Settings("SLURM_PROCID"));
  cluster_.ExpectAllFinish();
  for (uint32_t rank = 0; rank < cluster_.size(); ++rank) {
    EXPECT_THAT(cluster_.WorkerLog(rank), HasSubstr(absl::StrCat("rank=", rank, " rank_from=SLURM_PROCID")));
  }
}

TEST_F(LauncherRankSystemTest, ARankBeyondTheJobEndsTheWorkerWithTheVariablesName) {
  ExpectRefused(5, "the job has 2 ranks: 0 to 1");
}

}  // namespace
}  // namespace penstock::testing
