#include "common/files/scratch_folder.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "common/files/files.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

TEST(ScratchFolder, IsGoneWithAllInItWhenItsOwnerIs) {
  std::string path;
  {
    absl::StatusOr<ScratchFolder> made = ScratchFolder::Make("penstock-test");
    ASSERT_TRUE(made.ok()) << made.status();
    const ScratchFolder folder = *std::move(made);
    path = folder.path();
    ASSERT_TRUE(WriteFileAtomically(path + "/file", "text").ok());
    EXPECT_TRUE(fs::exists(path + "/file"));
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST(ScratchFolder, IsAnotherEachTime) {
  const absl::StatusOr<ScratchFolder> one = ScratchFolder::Make("penstock-test");
  const absl::StatusOr<ScratchFolder> other = ScratchFolder::Make("penstock-test");
  ASSERT_TRUE(one.ok() && other.ok());
  EXPECT_NE(one->path(), other->path());
}

}  // namespace
}  // namespace penstock
