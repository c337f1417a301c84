#include "common/checkpoint/rescue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/checkpoint/checkpoint_writing.h"
#include "common/files/files.h"
#include "common/safetensors/reader.h"
#include "tests/support/checkpoint_part.h"
#include "tests/support/temporary_folder.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr uint64_t kEpoch = 3;

class RescueFolderTest : public ::testing::Test {
 protected:
  CheckpointManifest Of(uint64_t iteration, const std::string& job = "job") const {
    return {.job_id = job, .next_iteration = iteration, .ranks = 4, .pipeline = 1, .data = 4};
  }

  void Write(uint32_t rank, uint64_t epoch = kEpoch) {
    const auto part = WriteRescuePart(dir_, rank, PartOf(absl::StrCat("two shares of ", rank)), Of(47), epoch,
                                      RealFolderChanges());
    ASSERT_TRUE(part.ok()) << part.status();
  }

  void WriteOrdinary(uint32_t rank, const std::string& job = "job") {
    const auto part =
        WritePart(dir_, rank, PartOf(absl::StrCat("share of ", rank)), Of(47, job), RealFolderChanges());
    ASSERT_TRUE(part.ok()) << part.status();
  }

  RescueRecords Records() const {
    RescueRecords records;
    FindRescueRecords(dir_, Of(47), kEpoch, records);
    return records;
  }

  absl::StatusOr<bool> Complete(size_t keep = 2) {
    return CompleteRescue(dir_, Of(47), Records(), keep, RealFolderChanges());
  }

  std::vector<std::string> Names(const std::string& folder) const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
    return names;
  }

  const TemporaryFolder temporary_;
  const std::string dir_ = temporary_.Path("checkpoints");
};

TEST_F(RescueFolderTest, WhatIsCompleteIsACheckpointLikeAnyOtherInWhichLostRanksHaveEmptyParts) {
  Write(0);
  Write(2);
  const auto completed = Complete();
  ASSERT_TRUE(completed.ok()) << completed.status();
  EXPECT_TRUE(*completed);
  EXPECT_THAT(Names(dir_), ElementsAre("iteration-47"));
  const auto checkpoint = OpenCheckpoint(dir_, 47, CheckpointDepth::kContents);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ(checkpoint->manifest.job_id, "job");
  EXPECT_EQ(checkpoint->manifest.data, 4u);
  EXPECT_THAT(Names(checkpoint->path),
              UnorderedElementsAre("manifest.json", "rank-0.safetensors", "rank-1.safetensors",
                                   "rank-2.safetensors", "rank-3.safetensors"));
  EXPECT_EQ(*ReadFile(PartPath(checkpoint->path, 2)), "two shares of 2");
  const auto lost = SafetensorsReader::Open(PartPath(checkpoint->path, 1));
  ASSERT_TRUE(lost.ok()) << lost.status();
  EXPECT_THAT(lost->tensors(), IsEmpty());
}

TEST_F(RescueFolderTest, AnOrdinaryPartOfTheSameCheckpointCountsUntilItsRankHasOneOfTheRescue) {
  WriteOrdinary(1);
  WriteOrdinary(2);
  RescueRecords records = Records();
  EXPECT_FALSE(records.at(1).rescued_from.has_value());
  Write(2);
  FindRescueRecords(dir_, Of(47), kEpoch, records);
  EXPECT_EQ(records.at(2).rescued_from, kEpoch);
  Write(0);
  ASSERT_TRUE(*Complete());
  const std::string path = CheckpointPath(dir_, 47);
  EXPECT_EQ(*ReadFile(PartPath(path, 1)), "share of 1");
  EXPECT_EQ(*ReadFile(PartPath(path, 2)), "two shares of 2");
  EXPECT_TRUE(OpenCheckpoint(dir_, 47, CheckpointDepth::kContents).ok());
}

TEST_F(RescueFolderTest, PartsOfAnotherEpochJobOrIterationDoNotCount) {
  Write(0, kEpoch - 1);
  WriteOrdinary(1, "other");
  ASSERT_TRUE(WritePart(dir_, 2, PartOf("share"), Of(46), RealFolderChanges()).ok());
  EXPECT_THAT(Records(), IsEmpty());
}

TEST_F(RescueFolderTest, OneProcessCompletesIt) {
  Write(0);
  Write(2);
  const RescueRecords records = Records();
  ASSERT_TRUE(*CompleteRescue(dir_, Of(47), records, 2, RealFolderChanges()));
  // One that looked at the same time.
  EXPECT_FALSE(*CompleteRescue(dir_, Of(47), records, 2, RealFolderChanges()));
  EXPECT_TRUE(OpenCheckpoint(dir_, 47, CheckpointDepth::kContents).ok());
}

TEST_F(RescueFolderTest, NobodyCompletesWhatAnotherProcessHasBegunTo) {
  Write(0);
  Write(2);
  fs::create_directories(CheckpointPath(dir_, 47) + ".rescued.partial");
  EXPECT_FALSE(*Complete());
  EXPECT_THAT(CompleteCheckpoints(dir_), IsEmpty());
}

TEST_F(RescueFolderTest, AnOrdinaryCheckpointOfTheSameIterationStays) {
  for (uint32_t rank = 0; rank < 4; ++rank) WriteOrdinary(rank);
  ASSERT_TRUE(CompleteCheckpoint(dir_, 47, 2, RealFolderChanges()).ok());
  Write(0);
  Write(2);
  EXPECT_FALSE(*Complete());
  EXPECT_EQ(*ReadFile(PartPath(CheckpointPath(dir_, 47), 0)), "share of 0");
}

TEST_F(RescueFolderTest, OlderOnesAreRemovedOnceItIsComplete) {
  for (const uint64_t iteration : {10, 20}) {
    for (uint32_t rank = 0; rank < 4; ++rank)
      ASSERT_TRUE(WritePart(dir_, rank, PartOf("share"), Of(iteration), RealFolderChanges()).ok());
    ASSERT_TRUE(CompleteCheckpoint(dir_, iteration, 2, RealFolderChanges()).ok());
  }
  Write(0);
  EXPECT_THAT(CompleteCheckpoints(dir_), ElementsAre(20, 10));
  Write(2);
  ASSERT_TRUE(*Complete());
  EXPECT_THAT(CompleteCheckpoints(dir_), ElementsAre(47, 20));
}

TEST_F(RescueFolderTest, WhatIsLeftOfOneIsRemovedWithWhatIsHalfWritten) {
  ASSERT_TRUE(AnnounceRescue(dir_, 0, Of(47), absl::Hours(1), RealFolderChanges()).ok());
  Write(0);
  fs::create_directories(CheckpointPath(dir_, 47) + ".rescued.partial");
  RemovePartialCheckpoints(dir_, RealFolderChanges());
  EXPECT_THAT(Names(dir_), IsEmpty());
}

TEST_F(RescueFolderTest, AnOrdinaryCheckpointIsNotCompletedFromPartsOfARescue) {
  for (uint32_t rank = 0; rank < 4; ++rank) Write(rank);
  EXPECT_TRUE(absl::IsFailedPrecondition(CompleteCheckpoint(dir_, 47, 2, RealFolderChanges())));
}

TEST_F(RescueFolderTest, IsAnnouncedUntilAllHaveWithdrawnOrItIsComplete) {
  const auto announced = [&] { return IsRescueAnnounced(dir_, "job"); };
  EXPECT_FALSE(announced());
  for (const uint32_t rank : {0, 2})
    ASSERT_TRUE(AnnounceRescue(dir_, rank, Of(47), absl::Hours(1), RealFolderChanges()).ok());
  EXPECT_TRUE(announced());
  EXPECT_FALSE(IsRescueAnnounced(dir_, "other"));
  WithdrawRescue(dir_, 0, Of(47), RealFolderChanges());
  EXPECT_TRUE(announced());
  WithdrawRescue(dir_, 2, Of(47), RealFolderChanges());
  EXPECT_FALSE(announced());
  for (const uint32_t rank : {0, 2})
    ASSERT_TRUE(AnnounceRescue(dir_, rank, Of(47), absl::Hours(1), RealFolderChanges()).ok());
  Write(0);
  Write(2);
  ASSERT_TRUE(*Complete());
  EXPECT_FALSE(announced());
  // One that comes late.
  ASSERT_TRUE(AnnounceRescue(dir_, 3, Of(47), absl::Hours(1), RealFolderChanges()).ok());
  EXPECT_FALSE(announced());
}

TEST_F(RescueFolderTest, IsAnnouncedForItsTimeWhereARankWasKilledAtIt) {
  ASSERT_TRUE(AnnounceRescue(dir_, 0, Of(47), absl::Seconds(30), RealFolderChanges()).ok());
  const fs::path announcement = fs::path(PartialCheckpointPath(dir_, 47)) / "rank-0.rescuing";
  const auto announced_at = fs::last_write_time(announcement);
  fs::last_write_time(announcement, announced_at - std::chrono::seconds(20));
  EXPECT_TRUE(IsRescueAnnounced(dir_, "job"));
  fs::last_write_time(announcement, announced_at - std::chrono::seconds(31));
  EXPECT_FALSE(IsRescueAnnounced(dir_, "job"));
  // Of another rank that is still at it.
  ASSERT_TRUE(AnnounceRescue(dir_, 2, Of(47), absl::Seconds(30), RealFolderChanges()).ok());
  EXPECT_TRUE(IsRescueAnnounced(dir_, "job"));
}

TEST_F(RescueFolderTest, AnAnnouncementThatIsHalfWrittenHoldsNobodyUp) {
  ASSERT_TRUE(AnnounceRescue(dir_, 0, Of(47), absl::Hours(1), RealFolderChanges()).ok());
  const std::string announcement = PartialCheckpointPath(dir_, 47) + "/rank-0.rescuing";
  for (const char* text : {"", "3600", "job", "3600000000000 jo", "x job"}) {
    ASSERT_TRUE(WriteFileAtomically(announcement, text).ok());
    EXPECT_FALSE(IsRescueAnnounced(dir_, "job")) << text;
  }
}

TEST_F(RescueFolderTest, AFullDiskLeavesTheCheckpointsFromBefore) {
  const absl::StatusOr<CheckpointPart> part = WriteRescuePart(
      dir_, 0,
      [](const std::string& path) -> absl::StatusOr<CheckpointPart> {
        return absl::ResourceExhaustedError("'" + path + "': the disk is full");
      },
      Of(47), kEpoch, RealFolderChanges());
  EXPECT_TRUE(absl::IsResourceExhausted(part.status()));
  EXPECT_THAT(Records(), IsEmpty());
}

}  // namespace
}  // namespace penstock
