#include "common/checkpoint/checkpoint_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint_writing.h"
#include "tests/support/checkpoint_part.h"
#include "tests/support/temporary_folder.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class CheckpointFolderTest : public ::testing::Test {
 protected:
  void Write(uint64_t iteration, const std::string& job = "job") {
    const CheckpointManifest of = {.job_id = job, .next_iteration = iteration, .ranks = 2};
    for (uint32_t rank = 0; rank < of.ranks; ++rank) {
      ASSERT_TRUE(WritePart(dir_, rank, PartOf(absl::StrCat("part ", rank)), of, RealFolderChanges()).ok());
    }
    const absl::Status status = CompleteCheckpoint(dir_, iteration, /*keep=*/9, RealFolderChanges());
    ASSERT_TRUE(status.ok()) << status;
  }

  absl::StatusOr<std::optional<Checkpoint>> Newest(CheckpointDepth depth = CheckpointDepth::kSizes) {
    damaged_.clear();
    return NewestCheckpoint(dir_, depth, [this](const std::string& path, const absl::Status& why) {
      damaged_.push_back(fs::path(path).filename());
      EXPECT_EQ(why.code(), absl::StatusCode::kDataLoss);
      EXPECT_THAT(std::string(why.message()), HasSubstr(path));
    });
  }

  uint64_t NewestIteration(CheckpointDepth depth = CheckpointDepth::kSizes) {
    const auto newest = Newest(depth);
    EXPECT_TRUE(newest.ok()) << newest.status();
    return newest.ok() && newest->has_value() ? (*newest)->manifest.next_iteration : 0;
  }

  const TemporaryFolder temporary_;
  const std::string dir_ = temporary_.path();
  std::vector<std::string> damaged_;
};

TEST_F(CheckpointFolderTest, FindsNothingWhereThereIsNothing) {
  EXPECT_FALSE(Newest()->has_value());
  EXPECT_FALSE((*NewestCheckpoint(dir_ + "/missing", CheckpointDepth::kSizes, nullptr)).has_value());
  EXPECT_EQ(OpenCheckpoint(dir_, 3, CheckpointDepth::kSizes).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(CheckpointFolderTest, FindsTheNewestByNumberNotByName) {
  Write(9);
  Write(10);
  EXPECT_THAT(CompleteCheckpoints(dir_), ElementsAre(10, 9));
  EXPECT_EQ(NewestIteration(), 10u);
  EXPECT_TRUE(CheckPart(**Newest(), 1).ok());
}

TEST_F(CheckpointFolderTest, AFolderWithoutAManifestIsNotComplete) {
  Write(4);
  Write(8);
  fs::remove(ManifestPath(CheckpointPath(dir_, 8)));
  EXPECT_THAT(CompleteCheckpoints(dir_), ElementsAre(4));
  EXPECT_EQ(NewestIteration(), 4u);
  EXPECT_THAT(damaged_, IsEmpty()) << "it is not damaged: it never was complete";
  fs::remove(ManifestPath(CheckpointPath(dir_, 4)));
  EXPECT_FALSE(Newest()->has_value());
}

TEST_F(CheckpointFolderTest, APartialOneDoesNotCount) {
  Write(4);
  fs::copy(CheckpointPath(dir_, 4), PartialCheckpointPath(dir_, 8));
  EXPECT_EQ(NewestIteration(), 4u);
}

TEST_F(CheckpointFolderTest, ADamagedOneFallsBackToTheOneBeforeAndIsNamed) {
  Write(4);
  Write(8);
  temporary_.Write("iteration-8/rank-1.safetensors", "part");
  EXPECT_EQ(NewestIteration(), 4u);
  EXPECT_THAT(damaged_, ElementsAre("iteration-8"));
  fs::remove(PartPath(CheckpointPath(dir_, 8), 1));
  EXPECT_EQ(NewestIteration(), 4u);
  for (const char* manifest : {"", "{}", R"({"ranks": 2, "next_iteration": 9})"}) {
    temporary_.Write("iteration-8/manifest.json", manifest);
    EXPECT_EQ(NewestIteration(), 4u) << manifest;
    EXPECT_THAT(damaged_, ElementsAre("iteration-8")) << manifest;
  }
}

TEST_F(CheckpointFolderTest, AChangedByteIsFoundByReading) {
  Write(4);
  Write(8);
  temporary_.Write("iteration-8/rank-0.safetensors", "p4rt 0");
  EXPECT_EQ(NewestIteration(CheckpointDepth::kSizes), 8u);
  EXPECT_EQ(NewestIteration(CheckpointDepth::kContents), 4u);
  EXPECT_THAT(damaged_, ElementsAre("iteration-8"));
  const auto opened = OpenCheckpoint(dir_, 8, CheckpointDepth::kSizes);
  EXPECT_EQ(CheckPart(*opened, 0).code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(CheckPart(*opened, 1).ok());
}

TEST_F(CheckpointFolderTest, WhereAllAreDamagedThereIsNoneToGoOnFrom) {
  Write(4);
  Write(8);
  for (const char* name : {"iteration-4/manifest.json", "iteration-8/manifest.json"})
    temporary_.Write(name, "");
  const absl::Status status = Newest().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("iteration-8/manifest.json"));
  EXPECT_THAT(damaged_, ElementsAre("iteration-8", "iteration-4"));
}

// As on a share that is away for a moment.
TEST_F(CheckpointFolderTest, WhatCannotBeReadIsNeitherMissingNorDamaged) {
  Write(4);
  Write(8);
  const std::string part = PartPath(CheckpointPath(dir_, 8), 1);
  const std::string manifest = ManifestPath(CheckpointPath(dir_, 8));
  for (const std::string& file : {part, manifest}) {
    fs::rename(file, file + ".away");
    fs::create_symlink(file, file);
    for (const CheckpointDepth depth : {CheckpointDepth::kSizes, CheckpointDepth::kContents}) {
      const absl::Status status = Newest(depth).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr(file));
    }
    EXPECT_THAT(damaged_, IsEmpty());
    fs::rename(file + ".away", file);
    EXPECT_EQ(NewestIteration(CheckpointDepth::kContents), 8u);
  }
  // Opened, and not read.
  fs::remove(manifest);
  fs::create_symlink("/proc/self/mem", manifest);
  EXPECT_EQ(Newest().status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(CheckpointFolderTest, AFolderThatCannotBeListedIsNotAnEmptyOne) {
  const std::string loop = temporary_.Path("loop");
  fs::create_symlink(loop, loop);
  EXPECT_EQ(ListCheckpoints(loop).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(NewestCheckpoint(loop, CheckpointDepth::kSizes, nullptr).ok());
  EXPECT_THAT(CompleteCheckpoints(loop), IsEmpty());
  EXPECT_THAT(*ListCheckpoints(temporary_.Path("missing")), IsEmpty());
}

TEST_F(CheckpointFolderTest, OnlyWantedOnesCount) {
  Write(4, "mine");
  Write(8, "other");
  const auto mine =
      NewestCheckpoint(dir_, CheckpointDepth::kSizes, nullptr,
                       [](const Checkpoint& checkpoint) { return checkpoint.manifest.job_id == "mine"; });
  EXPECT_EQ((*mine)->manifest.next_iteration, 4u);
  fs::remove(PartPath(CheckpointPath(dir_, 8), 1));
  const auto third =
      NewestCheckpoint(dir_, CheckpointDepth::kSizes, nullptr,
                       [](const Checkpoint& checkpoint) { return checkpoint.manifest.job_id == "third"; });
  ASSERT_TRUE(third.ok()) << "whose damaged one it is, is known: " << third.status();
  EXPECT_FALSE(third->has_value());
}

}  // namespace
}  // namespace penstock
