#include "common/files/files.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

namespace penstock {
namespace {

std::string TestPath(const std::string& name) { return testing::TempDir() + "/files_test/" + name; }

TEST(FilesTest, WhatIsWrittenIsReadBackByteForByte) {
  const std::string contents("line\n\0binary\xff", 13);
  ASSERT_TRUE(WriteFileAtomically(TestPath("new/folder/file"), contents).ok());
  const auto read = ReadFile(TestPath("new/folder/file"));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, contents);
}

TEST(FilesTest, WritingLeavesNoPartialFile) {
  ASSERT_TRUE(WriteFileAtomically(TestPath("whole"), "x").ok());
  EXPECT_FALSE(std::filesystem::exists(TestPath("whole.partial")));
}

TEST(FilesTest, MissingFileIsNotFoundAndNamed) {
  const auto read = ReadFile(TestPath("missing"));
  EXPECT_EQ(read.status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(std::string(read.status().message()).find("missing"), std::string::npos);
}

TEST(FilesTest, ReadingAFolderIsAnError) { EXPECT_FALSE(ReadFile(testing::TempDir()).ok()); }

}  // namespace
}  // namespace penstock
