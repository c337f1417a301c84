#include "planner/cli/up/run_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/status_matchers.h"
#include "tests/support/temporary_folder.h"

namespace penstock::cli {
namespace {

namespace fs = std::filesystem;

class RunFolderTest : public ::testing::Test {
 protected:
  absl::Status Prepare(bool fresh = false) {
    return PrepareRunFolder({.path = folder_.path(), .fresh = fresh}, {}).status();
  }

  const TemporaryFolder folder_;
  const std::string checkpoints_ = folder_.Path("checkpoints");
};

TEST_F(RunFolderTest, NoCheckpointIsRemovedThatNobodyWantsRemoved) {
  folder_.Write("checkpoints/iteration-8/manifest.json", "{}");
  EXPECT_THAT(Prepare(), Fails(absl::StatusCode::kAlreadyExists, "iteration-8: use --resume to go on"));
  fs::rename(checkpoints_ + "/iteration-8", checkpoints_ + "/iteration-8.damaged");
  EXPECT_THAT(Prepare(),
              Fails(absl::StatusCode::kAlreadyExists, "iteration-8.damaged, a damaged checkpoint"));
  EXPECT_TRUE(fs::exists(checkpoints_ + "/iteration-8.damaged/manifest.json"));
  EXPECT_THAT(Prepare(/*fresh=*/true), IsOk());
  EXPECT_TRUE(fs::is_empty(checkpoints_));
}

TEST_F(RunFolderTest, OneThatCannotBeLookedAtIsNotRemoved) {
  const std::string manifest = checkpoints_ + "/iteration-8/manifest.json";
  folder_.Write("checkpoints/iteration-8/rank-0.safetensors", "state");
  fs::create_symlink(manifest, manifest);
  EXPECT_THAT(Prepare(), Fails(absl::StatusCode::kInvalidArgument, manifest));
  EXPECT_TRUE(fs::exists(checkpoints_ + "/iteration-8/rank-0.safetensors"));
}

TEST_F(RunFolderTest, WhatIsHalfWrittenIsNoCheckpoint) {
  folder_.Write("checkpoints/iteration-8.partial/rank-0.safetensors", "state");
  EXPECT_THAT(Prepare(), IsOk());
  EXPECT_TRUE(fs::is_empty(checkpoints_));
}

}  // namespace
}  // namespace penstock::cli
