#include "worker/runtime/checkpoint_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/temporary_folder.h"

namespace penstock::worker {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

class CheckpointStoreTest : public ::testing::Test {
 protected:
  void Write(uint64_t iteration) {
    const auto path = MakePartialCheckpoint(folder_, iteration);
    ASSERT_TRUE(path.ok()) << path.status();
    std::ofstream(RankFile(*path, 0)) << "state of " << iteration;
    const absl::Status status = CompleteCheckpointFolder(folder_, iteration, job_, /*keep=*/2);
    ASSERT_TRUE(status.ok()) << status;
  }

  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) names.push_back(entry.path().filename());
    return names;
  }

  const TemporaryFolder temporary_;
  const std::string folder_ = temporary_.path();
  const JobConfig job_ = {.job_id = "job", .model = {}, .pipeline = 2, .replicas = 2};
};

TEST_F(CheckpointStoreTest, FindsNothingWhereThereIsNothing) {
  EXPECT_FALSE(FindNewestCheckpoint(folder_)->has_value());
  EXPECT_FALSE(FindNewestCheckpoint(folder_ + "/missing")->has_value());
}

TEST_F(CheckpointStoreTest, FindsTheNewestByNumberNotByName) {
  Write(9);
  Write(10);
  const auto newest = FindNewestCheckpoint(folder_);
  ASSERT_TRUE(newest.ok()) << newest.status();
  EXPECT_EQ((*newest)->next_iteration, 10u);
  EXPECT_EQ((*newest)->ranks, 4u);
  EXPECT_TRUE(fs::exists(RankFile((*newest)->path, 0)));
}

TEST_F(CheckpointStoreTest, APartialCheckpointDoesNotCount) {
  Write(4);
  ASSERT_TRUE(MakePartialCheckpoint(folder_, 8).ok());
  EXPECT_EQ((*FindNewestCheckpoint(folder_))->next_iteration, 4u);
}

TEST_F(CheckpointStoreTest, KeepsTheLastTwo) {
  for (uint64_t iteration : {2, 4, 6, 8}) Write(iteration);
  EXPECT_THAT(Names(), UnorderedElementsAre("iteration-6", "iteration-8"));
}

TEST_F(CheckpointStoreTest, ReplacesACheckpointOfTheSameIteration) {
  Write(2);
  Write(2);
  EXPECT_THAT(Names(), UnorderedElementsAre("iteration-2"));
}

TEST_F(CheckpointStoreTest, RemovesWhatWasLeftHalfWritten) {
  Write(2);
  ASSERT_TRUE(MakePartialCheckpoint(folder_, 4).ok());
  RemovePartialCheckpoints(folder_);
  EXPECT_THAT(Names(), UnorderedElementsAre("iteration-2"));
}

TEST_F(CheckpointStoreTest, AJobGoesOnFromItsOwnCheckpointsAndNotFromThoseOfOthers) {
  const CompleteCheckpoint start = {.path = "elsewhere", .next_iteration = 3};
  EXPECT_FALSE((*FindCheckpointOfJob(folder_, "other", std::nullopt)).has_value());
  Write(2);
  Write(4);
  EXPECT_EQ((*FindCheckpointOfJob(folder_, "job", start))->next_iteration, 4u);
  EXPECT_EQ((*FindCheckpointOfJob(folder_, "other", start))->next_iteration, 3u);
}

TEST_F(CheckpointStoreTest, NamesABrokenManifest) {
  Write(2);
  std::ofstream(folder_ + "/iteration-2/manifest.json") << "{";
  const absl::Status status = FindNewestCheckpoint(folder_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("iteration-2/manifest.json"));
}

TEST_F(CheckpointStoreTest, AManifestThatMakesNoSenseIsRefused) {
  Write(2);
  for (const char* manifest : {"", "[]", "{}", R"({"ranks": "4"})", R"({"ranks": 0, "next_iteration": 2})",
                               R"({"ranks": -4})", R"({"ranks": 4294967300, "next_iteration": 2})",
                               R"({"ranks": 4})", R"({"ranks": 4, "next_iteration": 3})"}) {
    std::ofstream(folder_ + "/iteration-2/manifest.json") << manifest;
    const absl::Status status = FindNewestCheckpoint(folder_).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << manifest;
    EXPECT_THAT(std::string(status.message()), HasSubstr("iteration-2/manifest.json")) << manifest;
  }
}

}  // namespace
}  // namespace penstock::worker
