// A run that was interrupted continues from its checkpoint with the losses of one that was not, bit for bit.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/checkpoint/checkpoint_writing.h"
#include "common/files/files.h"
#include "tests/system/harness/cluster.h"
#include "tests/system/harness/tiny_job.h"

namespace penstock::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

constexpr size_t kBatch = 12;

class ResumeTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kIterations = 6;

  ResumeTest() : batches_(TinyBatches(samples_, kBatch, kIterations)) {
    job_.mutable_mesh()->set_pipeline(2);
    job_.mutable_mesh()->set_data(2);
    job_.mutable_training()->set_iterations(kIterations);
    job_.mutable_training()->set_checkpoint_interval(2);
    job_.set_heartbeat_timeout_ms(4000);
    WriteTinyDataset(dataset_, samples_);
    cluster_.StartPlanner();
  }

  // Of workers that end at the first loss.
  WorkerSettings Settings(const std::string& checkpoints, bool resume) const {
    return {.dataset = dataset_,
            .checkpoint_dir = cluster_.folder().Path(checkpoints),
            .resume = resume,
            .arguments = {"--max-rejoins=0", "--no-rescue"}};
  }

  // The tensors of every rank after the last iteration, as they are written.
  std::vector<std::string> LastCheckpoint(const std::string& checkpoints) {
    std::vector<std::string> files;
    for (int rank = 0; rank < 4; ++rank) {
      const std::string path = cluster_.folder().Path(
          absl::StrCat(checkpoints, "/iteration-", kIterations, "/rank-", rank, ".safetensors"));
      const absl::StatusOr<std::string> contents = ReadFile(path);
      EXPECT_TRUE(contents.ok()) << contents.status();
      files.push_back(contents.value_or(path));
    }
    return files;
  }

  std::vector<Figures> UninterruptedRun() {
    v1::JobSpec job = job_;
    job.set_job_id("uninterrupted");
    cluster_.Register(job);
    cluster_.Submit(job.job_id(), batches_);
    cluster_.StartWorkers(job, Settings("other", false));
    cluster_.ExpectAllFinish();
    return cluster_.FiguresOf(job.job_id());
  }

  // Four iterations of job_; then rank 1 is killed. The first checkpoint is complete, because the second one
  // is due; the second one is not, because no iteration follows in which the ranks could say that it is
  // there.
  void Interrupt() {
    cluster_.Register(job_);
    cluster_.Submit(job_.job_id(), {batches_.begin(), batches_.begin() + 4});
    cluster_.StartWorkers(job_, Settings("checkpoints", false));
    cluster_.WaitForIterations(job_.job_id(), 4);
    cluster_.WaitForCheckpoint(cluster_.folder().Path("checkpoints"), 2);
    cluster_.worker(1).Signal(SIGKILL);
    for (uint32_t rank : {0, 2, 3}) cluster_.ExpectEnd(rank, absl::Seconds(10));
  }

  const std::vector<TinySample> samples_ = TinySamples(36);
  const std::vector<v1::Batch> batches_;
  v1::JobSpec job_ = TinyJob();
  Cluster cluster_;
  const std::string dataset_ = cluster_.folder().Path("data");
};

TEST_F(ResumeTest, ContinuesWithTheSameBits) {
  Interrupt();
  cluster_.StartWorkers(job_, Settings("checkpoints", true));
  cluster_.WaitUntilRunning(job_.job_id());
  cluster_.Submit(job_.job_id(), {batches_.begin() + 4, batches_.end()});
  cluster_.ExpectAllFinish();
  EXPECT_THAT(cluster_.WorkerLog(0), HasSubstr("next_iteration=2"));
  const std::vector<Figures> resumed = cluster_.FiguresOf(job_.job_id());
  const std::vector<Figures> expected = UninterruptedRun();
  EXPECT_EQ(resumed.size(), kIterations);
  EXPECT_EQ(resumed, expected);
  // Parameters and both moments of every rank.
  EXPECT_TRUE(LastCheckpoint("checkpoints") == LastCheckpoint("other"));
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
  const std::vector<Figures> resumed = cluster_.FiguresOf(job.job_id());
  const std::vector<Figures> expected = UninterruptedRun();
  ASSERT_EQ(resumed.size(), kIterations - 2);
  ASSERT_EQ(expected.size(), kIterations);
  for (size_t i = 0; i < resumed.size(); ++i) {
    EXPECT_NEAR(resumed[i].loss, expected[i + 2].loss, 1e-12);
    EXPECT_NEAR(resumed[i].norm, expected[i + 2].norm, 1e-11);
  }
}

// A rank that died after its last report, and that an orchestrator starts again.
TEST_F(ResumeTest, AWorkerThatComesAfterTheEndHasNothingLeftToDoButTheSealOfTheLastCheckpoint) {
  UninterruptedRun();
  v1::JobSpec job = job_;
  job.set_job_id("uninterrupted");
  const std::string folder = cluster_.folder().Path("other");
  const std::string complete = absl::StrCat(folder, "/iteration-", kIterations);
  const std::vector<std::string> parts = LastCheckpoint("other");
  auto sealed = OpenCheckpoint(folder, kIterations, CheckpointDepth::kContents);
  ASSERT_TRUE(sealed.ok()) << sealed.status();
  // As it was before it was sealed.
  std::filesystem::rename(complete, PartialCheckpointPath(folder, kIterations));
  std::filesystem::remove(PartialCheckpointPath(folder, kIterations) + "/manifest.json");
  sealed->manifest.parts.clear();
  for (uint32_t rank = 0; rank < 4; ++rank)
    ASSERT_TRUE(RecordPart(folder, rank, sealed->manifest, RealFolderChanges()).ok());
  for (const uint32_t rank : {3, 0}) {
    EXPECT_FALSE(std::filesystem::exists(complete));
    cluster_.RestartWorker(job, rank, Settings("other", true));
    EXPECT_TRUE(cluster_.ExpectEnd(rank, Cluster::kDeadline).ok()) << cluster_.WorkerLog(rank);
    EXPECT_THAT(cluster_.WorkerLog(rank), HasSubstr("the job is finished: there is nothing left to do"));
  }
  const auto checkpoint = OpenCheckpoint(folder, kIterations, CheckpointDepth::kContents);
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_TRUE(LastCheckpoint("other") == parts);
}

TEST_F(ResumeTest, KeepsTheLastTwoCheckpointsAndNothingHalfWritten) {
  UninterruptedRun();
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(cluster_.folder().Path("other"))) {
    names.push_back(entry.path().filename());
  }
  EXPECT_THAT(names, UnorderedElementsAre("iteration-4", "iteration-6"));
}

}  // namespace
}  // namespace penstock::testing
