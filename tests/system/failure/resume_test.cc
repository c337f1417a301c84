// A run that was interrupted continues from its checkpoint with the losses of one that was not, bit for bit.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/system/harness/cluster.h"
#include "tests/system/harness/tiny_job.h"

namespace penstock::testing {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

constexpr uint64_t kIterations = 6;
constexpr size_t kBatch = 12;

class ResumeTest : public ::testing::Test {
 protected:
  ResumeTest() : batches_(TinyBatches(samples_, kBatch, kIterations)) {
    job_.mutable_mesh()->set_pipeline(2);
    job_.mutable_mesh()->set_data(2);
    job_.mutable_training()->set_iterations(kIterations);
    job_.mutable_training()->set_checkpoint_interval(2);
    job_.set_heartbeat_timeout_ms(2000);
    WriteTinyDataset(dataset_, samples_);
    cluster_.StartPlanner();
  }

  WorkerSettings Settings(const std::string& checkpoints, bool resume) const {
    return {.dataset = dataset_, .checkpoint_dir = cluster_.folder().Path(checkpoints), .resume = resume};
  }

  std::vector<double> Losses(const std::string& job_id) {
    std::vector<double> losses;
    for (const v1::IterationSummary& summary : cluster_.Summaries(job_id)) losses.push_back(summary.loss());
    return losses;
  }

  std::vector<double> UninterruptedLosses() {
    v1::JobSpec job = job_;
    job.set_job_id("uninterrupted");
    cluster_.Register(job);
    cluster_.Submit(job.job_id(), batches_);
    cluster_.StartWorkers(job, Settings("other", false));
    cluster_.ExpectAllFinish();
    return Losses(job.job_id());
  }

  // Three iterations of job_, the last beyond the checkpoint; then rank 1 is killed.
  void Interrupt() {
    cluster_.Register(job_);
    cluster_.Submit(job_.job_id(), {batches_.begin(), batches_.begin() + 3});
    cluster_.StartWorkers(job_, Settings("checkpoints", false));
    cluster_.WaitForIterations(job_.job_id(), 3);
    cluster_.worker(1).Signal(SIGKILL);
    for (uint32_t rank : {0, 2, 3}) cluster_.ExpectEnd(rank, absl::Seconds(10));
  }

  const std::vector<TinySample> samples_ = TinySamples(36);
  const std::vector<v1::Batch> batches_;
  v1::JobSpec job_ = TinyJob();
  Cluster cluster_;
  const std::string dataset_ = cluster_.folder().Path("data");
};

TEST_F(ResumeTest, ContinuesWithTheSameLossesBitForBit) {
  Interrupt();
  cluster_.StartWorkers(job_, Settings("checkpoints", true));
  cluster_.WaitUntilRunning(job_.job_id());
  cluster_.Submit(job_.job_id(), {batches_.begin() + 3, batches_.end()});
  cluster_.ExpectAllFinish();
  EXPECT_THAT(cluster_.WorkerLog(0), HasSubstr("next_iteration=2"));
  const std::vector<double> resumed = Losses(job_.job_id());
  EXPECT_EQ(resumed.size(), kIterations);
  EXPECT_THAT(resumed, ElementsAreArray(UninterruptedLosses()));
}

TEST_F(ResumeTest, ContinuesOnAnotherSplitWithinRounding) {
  Interrupt();
  v1::JobSpec job = job_;
  job.set_job_id("split");
  job.set_first_iteration(2);
  job.mutable_mesh()->set_pipeline(4);
  job.mutable_mesh()->set_data(1);
  cluster_.Register(job);
  cluster_.Submit(job.job_id(), {batches_.begin() + 2, batches_.end()});
  cluster_.StartWorkers(job, Settings("checkpoints", true));
  cluster_.ExpectAllFinish();
  const std::vector<double> resumed = Losses(job.job_id());
  const std::vector<double> expected = UninterruptedLosses();
  ASSERT_EQ(resumed.size(), kIterations - 2);
  for (size_t i = 0; i < resumed.size(); ++i) EXPECT_NEAR(resumed[i], expected[i + 2], 1e-12);
}

TEST_F(ResumeTest, KeepsTheLastTwoCheckpointsAndNothingHalfWritten) {
  UninterruptedLosses();
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(cluster_.folder().Path("other"))) {
    names.push_back(entry.path().filename());
  }
  EXPECT_THAT(names, UnorderedElementsAre("iteration-4", "iteration-6"));
}

}  // namespace
}  // namespace penstock::testing
