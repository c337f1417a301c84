#include "worker/runtime/checkpoint_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "common/checkpoint/checkpoint_writing.h"
#include "tests/support/checkpoint_part.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_folder.h"

namespace penstock::worker {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CheckpointStoreTest : public ::testing::Test {
 protected:
  Checkpoint Write(uint64_t iteration, const std::string& job = "job") {
    const JobConfig config = {.job_id = job, .model = {}, .pipeline = 2, .replicas = 1};
    for (uint32_t rank = 0; rank < 2; ++rank) {
      const absl::Status written =
          WritePart(folder_, rank, PartOf("state"), ManifestOf(config, iteration), RealFolderChanges())
              .status();
      EXPECT_TRUE(written.ok()) << written;
    }
    const absl::Status status = CompleteCheckpoint(folder_, iteration, /*keep=*/9, RealFolderChanges());
    EXPECT_TRUE(status.ok()) << status;
    return *OpenCheckpoint(folder_, iteration, CheckpointDepth::kContents);
  }

  void Damage(const Checkpoint& checkpoint) { fs::remove(PartPath(checkpoint.path, 1)); }

  uint64_t OfJob(const std::string& job, const std::optional<Checkpoint>& started_from) {
    const auto found = FindCheckpointOfJob(folder_, job, started_from);
    EXPECT_TRUE(found.ok()) << found.status();
    return found.ok() && found->has_value() ? (*found)->manifest.next_iteration : 0;
  }

  const TemporaryFolder temporary_;
  const std::string folder_ = temporary_.path();
};

TEST_F(CheckpointStoreTest, TheNewestFallsBackToTheOneBefore) {
  Write(2);
  const Checkpoint newest = Write(4);
  EXPECT_EQ((*FindNewestCheckpoint(folder_))->manifest.next_iteration, 4u);
  Damage(newest);
  EXPECT_EQ((*FindNewestCheckpoint(folder_))->manifest.next_iteration, 2u);
}

TEST_F(CheckpointStoreTest, AJobGoesOnFromItsOwnCheckpointsAndNotFromThoseOfOthers) {
  EXPECT_EQ(OfJob("other", std::nullopt), 0u);
  const Checkpoint start = Write(2, "earlier");
  Write(4);
  Write(6);
  EXPECT_EQ(OfJob("job", start), 6u);
  EXPECT_EQ(OfJob("other", start), 2u);
  EXPECT_EQ(OfJob("other", std::nullopt), 0u);
}

TEST_F(CheckpointStoreTest, ADamagedCheckpointOfAJobSendsItBackToTheOneBefore) {
  Write(2, "earlier");
  const Checkpoint start = Write(4, "earlier");
  const Checkpoint first = Write(6);
  Damage(Write(8));
  EXPECT_EQ(OfJob("job", start), 6u);
  Damage(first);
  EXPECT_EQ(OfJob("job", start), 4u);
  EXPECT_EQ(OfJob("other", std::nullopt), 0u) << "it has none";
  Damage(start);
  EXPECT_EQ(OfJob("job", start), 2u);
}

TEST_F(CheckpointStoreTest, WhereAllAreDamagedAJobDoesNotBeginAnew) {
  const Checkpoint start = Write(2, "earlier");
  Damage(Write(4));
  EXPECT_THAT(FindCheckpointOfJob(folder_, "job", std::nullopt),
              Fails(absl::StatusCode::kDataLoss, "iteration-4"));
  EXPECT_EQ(OfJob("job", start), 2u);
  Damage(start);
  EXPECT_THAT(FindCheckpointOfJob(folder_, "job", start), Fails(absl::StatusCode::kDataLoss, "iteration-2"));
}

// As on a share that is away for a moment.
TEST_F(CheckpointStoreTest, WhatCannotBeSeenIsNotTakenForNothing) {
  const Checkpoint start = Write(2, "earlier");
  const std::string manifest = ManifestPath(Write(4).path);
  fs::remove(manifest);
  fs::create_symlink("/proc/self/mem", manifest);
  for (const std::optional<Checkpoint>& from : {std::optional<Checkpoint>(), std::optional(start)})
    EXPECT_THAT(FindCheckpointOfJob(folder_, "job", from), Fails(absl::StatusCode::kUnavailable, manifest));
  EXPECT_THAT(FindNewestCheckpoint(folder_), Fails(absl::StatusCode::kUnavailable, manifest));
  const std::string loop = temporary_.Path("loop");
  fs::create_symlink(loop, loop);
  EXPECT_FALSE(FindCheckpointOfJob(loop, "job", start).ok());
}

TEST_F(CheckpointStoreTest, APartThatCannotBeReadEndsTheEpochAndIsKeptAside) {
  Write(2);
  const Checkpoint newest = Write(4);
  for (int rank = 0; rank < 2; ++rank) {
    const absl::Status status =
        PassOverDamaged(newest, absl::DataLossError("'rank-1' is damaged"), RealFolderChanges());
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("'rank-1' is damaged; it is kept as"));
  }
  EXPECT_EQ((*FindNewestCheckpoint(folder_))->manifest.next_iteration, 2u);
  EXPECT_TRUE(fs::exists(newest.path + ".damaged"));
}

TEST(ReadingOrder, BeginsWithTheRanksOfTheSamePlaceInThePipeline) {
  EXPECT_THAT(ReadingOrder({.ranks = 4, .pipeline = 2, .data = 2}, 1), ElementsAre(1, 3, 2, 0));
  EXPECT_THAT(ReadingOrder({.ranks = 4, .pipeline = 2, .data = 2}, 2), ElementsAre(2, 0, 3, 1));
  EXPECT_THAT(ReadingOrder({.ranks = 8, .pipeline = 2, .data = 2}, 3), ElementsAre(3, 6, 7, 2, 4, 5, 0, 1))
      << "stage groups of two";
  EXPECT_THAT(ReadingOrder({.ranks = 3}, 7), ElementsAre(1, 2, 0)) << "of the first format";
}

}  // namespace
}  // namespace penstock::worker
