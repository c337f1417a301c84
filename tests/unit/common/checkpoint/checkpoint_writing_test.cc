#include "common/checkpoint/checkpoint_writing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/files/files.h"
#include "tests/support/checkpoint_part.h"
#include "tests/support/small_disk.h"
#include "tests/support/temporary_folder.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

// Writes down what is changed, does it, and fails where it is told to.
class RecordedChanges : public FolderChanges {
 public:
  absl::Status Write(const std::string& path, absl::string_view contents) override {
    return Do("write", path, [&] { return RealFolderChanges().Write(path, contents); });
  }
  absl::Status Make(const std::string& folder) override { return RealFolderChanges().Make(folder); }
  absl::Status Sync(const std::string& folder) override {
    return Do("sync", folder, [&] { return RealFolderChanges().Sync(folder); });
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    return Do("rename to", to, [&] { return RealFolderChanges().Rename(from, to); });
  }
  absl::Status Remove(const std::string& path) override {
    return Do("remove", path, [&] { return RealFolderChanges().Remove(path); });
  }

  std::vector<std::string> done;
  // "sync DIR", say, which ends with an error.
  std::string failing;

 private:
  template <typename Change>
  absl::Status Do(const std::string& what, const std::string& path, Change change) {
    const std::string event = absl::StrCat(what, " ", fs::path(path).filename().string());
    if (event == failing) return absl::ResourceExhaustedError(absl::StrCat("'", path, "': the disk is full"));
    done.push_back(event);
    return change();
  }
};

class CheckpointWritingTest : public ::testing::Test {
 protected:
  CheckpointManifest Of(uint64_t iteration, const std::string& job = "job") const {
    return {.job_id = job, .next_iteration = iteration, .ranks = 2, .pipeline = 2, .data = 1};
  }

  void WriteParts(uint64_t iteration) {
    for (uint32_t rank = 0; rank < 2; ++rank) {
      const absl::Status status =
          WritePart(dir_, rank, PartOf("state", changes_), Of(iteration), changes_).status();
      ASSERT_TRUE(status.ok()) << status;
    }
  }

  void Write(uint64_t iteration, size_t keep = 2) {
    WriteParts(iteration);
    const absl::Status status = CompleteCheckpoint(dir_, iteration, keep, changes_);
    ASSERT_TRUE(status.ok()) << status;
  }

  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(dir_)) names.push_back(entry.path().filename());
    return names;
  }

  // The place of an event.
  ptrdiff_t At(const std::string& event) const {
    const auto found = std::find(changes_.done.begin(), changes_.done.end(), event);
    EXPECT_NE(found, changes_.done.end()) << event;
    return found - changes_.done.begin();
  }

  const TemporaryFolder temporary_;
  const std::string dir_ = temporary_.Path("checkpoints");
  RecordedChanges changes_;
};

TEST_F(CheckpointWritingTest, WhatIsCompleteIsSoundAndHoldsItsPartsAlone) {
  Write(4);
  const auto checkpoint = OpenCheckpoint(dir_, 4, CheckpointDepth::kContents);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ(checkpoint->manifest.ranks, 2u);
  EXPECT_EQ(checkpoint->manifest.pipeline, 2u);
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(checkpoint->path)) files.push_back(entry.path().filename());
  EXPECT_THAT(files, UnorderedElementsAre("rank-0.safetensors", "rank-1.safetensors", "manifest.json"));
}

TEST_F(CheckpointWritingTest, KeepsTheLastTwo) {
  for (const uint64_t iteration : {2, 4, 6, 8}) Write(iteration);
  EXPECT_THAT(Names(), UnorderedElementsAre("iteration-6", "iteration-8"));
}

TEST_F(CheckpointWritingTest, KeepsAsManyAsAskedForOrAll) {
  for (const uint64_t iteration : {2, 4, 6}) Write(iteration, /*keep=*/0);
  EXPECT_THAT(Names(), UnorderedElementsAre("iteration-2", "iteration-4", "iteration-6"));
  Write(8, /*keep=*/1);
  EXPECT_THAT(Names(), UnorderedElementsAre("iteration-8"));
}

TEST_F(CheckpointWritingTest, ADamagedOneDoesNotTakeThePlaceOfASoundOne) {
  Write(2);
  Write(4);
  fs::remove(PartPath(CheckpointPath(dir_, 4), 1));
  Write(6);
  EXPECT_THAT(Names(), UnorderedElementsAre("iteration-2", "iteration-4", "iteration-6"));
  Write(8);
  EXPECT_THAT(Names(), UnorderedElementsAre("iteration-6", "iteration-8"));
}

TEST_F(CheckpointWritingTest, LaterOnesOfAnotherRunStay) {
  Write(90);
  Write(95);
  Write(2);
  EXPECT_THAT(Names(), UnorderedElementsAre("iteration-2", "iteration-90", "iteration-95"));
}

TEST_F(CheckpointWritingTest, ReplacesOneOfTheSameIteration) {
  Write(2);
  Write(2);
  EXPECT_THAT(Names(), UnorderedElementsAre("iteration-2"));
  EXPECT_TRUE(OpenCheckpoint(dir_, 2, CheckpointDepth::kContents).ok());
}

TEST_F(CheckpointWritingTest, NothingOldGoesBeforeTheNewOneIsOnTheDisk) {
  Write(2);
  Write(4);
  changes_.done.clear();
  Write(6);
  EXPECT_LT(At("write rank-1.json"), At("write manifest.json"));
  EXPECT_LT(At("write manifest.json"), At("sync iteration-6.partial"));
  EXPECT_LT(At("sync iteration-6.partial"), At("rename to iteration-6"));
  EXPECT_LT(At("rename to iteration-6"), At("sync checkpoints"));
  EXPECT_LT(At("sync checkpoints"), At("remove iteration-2"));
}

TEST_F(CheckpointWritingTest, WhereAnyStepFailsTheOldOnesStay) {
  for (const char* step : {"write rank-1.safetensors", "write rank-1.json", "write manifest.json",
                           "sync iteration-6.partial", "rename to iteration-6", "sync checkpoints"}) {
    std::filesystem::remove_all(dir_);
    changes_.failing = "";
    Write(2);
    Write(4);
    changes_.failing = step;
    absl::Status status;
    for (uint32_t rank = 0; rank < 2; ++rank)
      status.Update(WritePart(dir_, rank, PartOf("state", changes_), Of(6), changes_).status());
    if (status.ok()) status = CompleteCheckpoint(dir_, 6, 2, changes_);
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << step;
    for (const uint64_t iteration : {2, 4})
      EXPECT_TRUE(OpenCheckpoint(dir_, iteration, CheckpointDepth::kContents).ok()) << step;
    // Nobody takes a part of one for a whole one.
    const auto newest = NewestCheckpoint(dir_, CheckpointDepth::kContents, nullptr);
    ASSERT_TRUE(newest.ok()) << step;
    EXPECT_TRUE(OpenCheckpoint(dir_, (*newest)->manifest.next_iteration, CheckpointDepth::kContents).ok());
  }
}

TEST_F(CheckpointWritingTest, OneThatLacksAPartIsNotCompleted) {
  ASSERT_TRUE(WritePart(dir_, 0, PartOf("state", changes_), Of(4), changes_).ok());
  const absl::Status status = CompleteCheckpoint(dir_, 4, 2, changes_);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("iteration-4.partial' has no part of rank 1"));
  EXPECT_TRUE(CompleteCheckpoints(dir_).empty());
}

TEST_F(CheckpointWritingTest, PartsOfTwoJobsMakeNoCheckpoint) {
  ASSERT_TRUE(WritePart(dir_, 0, PartOf("state", changes_), Of(4), changes_).ok());
  ASSERT_TRUE(WritePart(dir_, 1, PartOf("state", changes_), Of(4, "other"), changes_).ok());
  EXPECT_EQ(CompleteCheckpoint(dir_, 4, 2, changes_).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(CompleteCheckpoints(dir_).empty());
}

TEST_F(CheckpointWritingTest, OneWhoseCompletionWasInterruptedIsCompletedLater) {
  changes_.failing = "rename to iteration-4";
  WriteParts(4);
  EXPECT_FALSE(CompleteCheckpoint(dir_, 4, 2, changes_).ok());
  EXPECT_THAT(PartialCheckpoints(dir_), ElementsAre(4));
  changes_.failing = "";
  EXPECT_TRUE(CompleteCheckpoint(dir_, 4, 2, changes_).ok());
  EXPECT_TRUE(OpenCheckpoint(dir_, 4, CheckpointDepth::kContents).ok());
}

TEST_F(CheckpointWritingTest, APartOfManyPiecesIsRecordedAsItLies) {
  std::string part((size_t{5} << 20) + 7, 'x');
  for (size_t i = 0; i < part.size(); i += 1000) part[i] = static_cast<char>(i / 1000);
  const std::string partial = PartialCheckpointPath(dir_, 4);
  ASSERT_TRUE(RealFolderChanges().Make(partial).ok());
  EXPECT_EQ(RecordPart(dir_, 0, Of(4), RealFolderChanges()).code(), absl::StatusCode::kNotFound);
  for (uint32_t rank = 0; rank < 2; ++rank) {
    ASSERT_TRUE(WriteFileAtomically(PartPath(partial, rank), part).ok());
    ASSERT_TRUE(RecordPart(dir_, rank, Of(4), RealFolderChanges()).ok());
  }
  ASSERT_TRUE(CompleteCheckpoint(dir_, 4, 2, RealFolderChanges()).ok());
  const auto sound = OpenCheckpoint(dir_, 4, CheckpointDepth::kContents);
  ASSERT_TRUE(sound.ok()) << sound.status();
  EXPECT_EQ(sound->manifest.parts[1].bytes, part.size());
}

TEST_F(CheckpointWritingTest, RemovesWhatWasLeftHalfWritten) {
  Write(2);
  WriteParts(4);
  RemovePartialCheckpoints(dir_, changes_);
  EXPECT_THAT(Names(), UnorderedElementsAre("iteration-2"));
}

TEST_F(CheckpointWritingTest, SetsADamagedOneAside) {
  for (int i = 0; i < 2; ++i) {
    Write(2);
    const auto aside = SetDamagedAside(CheckpointPath(dir_, 2), changes_);
    ASSERT_TRUE(aside.ok()) << aside.status();
    EXPECT_THAT(Names(), UnorderedElementsAre("iteration-2.damaged"));
  }
  EXPECT_TRUE(SetDamagedAside(CheckpointPath(dir_, 2), changes_).ok()) << "another process was faster";
  EXPECT_THAT(Names(), UnorderedElementsAre("iteration-2.damaged"));
}

TEST_F(CheckpointWritingTest, AFullDiskIsSaidAndLeavesTheLastOneAlone) {
  const TemporaryFolder folder;
  const auto disk = SmallDisk::Mount(folder.path(), 1 << 20);
  if (!disk.ok()) GTEST_SKIP() << disk.status();
  const std::string part(64 << 10, 'x');
  const auto write = [&](uint64_t iteration) {
    absl::Status status;
    for (uint32_t rank = 0; rank < 2; ++rank)
      status.Update(
          WritePart(folder.path(), rank, PartOf(part), Of(iteration), RealFolderChanges()).status());
    if (status.ok()) status = CompleteCheckpoint(folder.path(), iteration, 2, RealFolderChanges());
    return status;
  };
  ASSERT_TRUE(write(2).ok());
  (*disk)->Fill();
  const absl::Status full = write(4);
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted) << full;
  EXPECT_THAT(std::string(full.message()), HasSubstr("No space left on device"));
  EXPECT_TRUE(OpenCheckpoint(folder.path(), 2, CheckpointDepth::kContents).ok());
  EXPECT_THAT(CompleteCheckpoints(folder.path()), ElementsAre(2));
  (*disk)->MakeRoom();
  EXPECT_TRUE(write(4).ok());
  EXPECT_THAT(CompleteCheckpoints(folder.path()), ElementsAre(4, 2));
}

}  // namespace
}  // namespace penstock
