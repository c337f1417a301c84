#include "common/files/files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <filesystem>
#include <future>
#include <string>

#include "common/process/file_descriptor.h"
#include "tests/support/temporary_folder.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class FilesTest : public testing::Test {
 protected:
  std::string Path(const std::string& name) const { return folder_.Path(name); }
  // Expects it to be there.
  std::string Contents(const std::string& name) const {
    const auto read = ReadFile(Path(name));
    EXPECT_TRUE(read.ok()) << read.status();
    return read.value_or("");
  }
  std::string MakeFifo() const {
    EXPECT_EQ(mkfifo(Path("fifo").c_str(), 0600), 0);
    return Path("fifo");
  }

  TemporaryFolder folder_;
};

TEST_F(FilesTest, WhatIsWrittenIsReadBackByteForByte) {
  const std::string contents("line\n\0binary\xff", 13);
  ASSERT_TRUE(WriteFileAtomically(Path("new/folder/file"), contents).ok());
  EXPECT_EQ(Contents("new/folder/file"), contents);
}

TEST_F(FilesTest, WritingLeavesNoPartialFile) {
  ASSERT_TRUE(WriteFileAtomically(Path("whole"), "x").ok());
  EXPECT_FALSE(fs::exists(Path("whole.partial")));
}

TEST_F(FilesTest, MissingFileIsNotFoundAndNamed) {
  const auto read = ReadFile(Path("missing"));
  EXPECT_EQ(read.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(read.status().message()), HasSubstr("missing"));
}

TEST_F(FilesTest, ReadingAFolderIsAnError) { EXPECT_FALSE(ReadFile(folder_.path()).ok()); }

TEST_F(FilesTest, AFolderIsNotReplacedAndNothingIsLeftBesideIt) {
  fs::create_directory(Path("folder"));
  for (const auto& status : {WriteFileAtomically(Path("folder"), "x"), CheckWritable(Path("folder"))}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(Path("folder")), HasSubstr("a folder")));
  }
  EXPECT_FALSE(fs::exists(Path("folder.partial")));
  EXPECT_FALSE(WriteFileAtomically(Path("folder/"), "x").ok());
  EXPECT_TRUE(fs::is_empty(Path("folder")));
}

TEST_F(FilesTest, AFileThatIsReplacedKeepsItsPermissions) {
  folder_.Write("private", "old");
  fs::permissions(Path("private"), fs::perms::owner_read | fs::perms::owner_write);
  ASSERT_TRUE(WriteFileAtomically(Path("private"), "new").ok());
  EXPECT_EQ(Contents("private"), "new");
  EXPECT_EQ(fs::status(Path("private")).permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

TEST_F(FilesTest, ALinkStaysAndItsFileIsWritten) {
  folder_.Write("elsewhere/file", "old");
  fs::create_symlink("elsewhere/file", Path("link"));
  fs::create_symlink(Path("link"), Path("link-to-link"));
  ASSERT_TRUE(WriteFileAtomically(Path("link-to-link"), "new").ok());
  EXPECT_TRUE(fs::is_symlink(Path("link-to-link")) && fs::is_symlink(Path("link")));
  EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(Path("elsewhere/file"))));
  EXPECT_EQ(Contents("elsewhere/file"), "new");
}

TEST_F(FilesTest, ALinkToNothingGetsItsFile) {
  fs::create_symlink("later/file", Path("link"));
  ASSERT_TRUE(WriteFileAtomically(Path("link"), "new").ok());
  EXPECT_TRUE(fs::is_symlink(Path("link")));
  EXPECT_EQ(Contents("later/file"), "new");
}

TEST_F(FilesTest, ACircleOfLinksIsAnError) {
  fs::create_symlink("b", Path("a"));
  fs::create_symlink("a", Path("b"));
  EXPECT_EQ(WriteFileAtomically(Path("a"), "x").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(fs::is_symlink(Path("a")));
}

TEST_F(FilesTest, AFifoIsWrittenThrough) {
  const std::string fifo = MakeFifo();
  // More than a pipe holds.
  const std::string contents(1 << 20, 'x');
  FileDescriptor also_open(open(fifo.c_str(), O_RDWR | O_CLOEXEC));  // lets the reader begin, whatever comes
  std::future<std::string> reader = std::async(std::launch::async, [&] { return *ReadFile(fifo); });
  const absl::Status written = WriteFileAtomically(fifo, contents);
  also_open.Close();
  EXPECT_TRUE(written.ok()) << written;
  EXPECT_EQ(reader.get().size(), contents.size());
  EXPECT_TRUE(fs::is_fifo(fifo));
}

TEST_F(FilesTest, AReaderThatGoesAwayIsAnErrorAndNotTheEndOfTheProcess) {
  const std::string fifo = MakeFifo();
  FileDescriptor reader(open(fifo.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  std::future<absl::Status> written =
      std::async(std::launch::async, [&] { return WriteFileAtomically(fifo, std::string(1 << 20, 'x')); });
  char first = 0;
  while (read(reader.get(), &first, 1) != 1 &&
         written.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready) {
  }
  reader.Close();
  const absl::Status status = written.get();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(fifo), HasSubstr("Broken pipe")));
}

TEST_F(FilesTest, AFullDeviceIsAnErrorAndStaysADevice) {
  const std::string full = Path("full");
  // /dev/full under another name: where this test fails, the machine keeps its own.
  if (mknod(full.c_str(), S_IFCHR | 0600, makedev(1, 7)) != 0 ||
      FileDescriptor(open(full.c_str(), O_WRONLY)).get() < 0)
    GTEST_SKIP() << "this user cannot make devices here";
  EXPECT_TRUE(CheckWritable(full).ok());
  const absl::Status status = WriteFileAtomically(full, "x");
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr(full));
  EXPECT_TRUE(fs::is_character_file(full));
}

TEST_F(FilesTest, WhatCannotBeWrittenIsFoundBeforehand) {
  EXPECT_TRUE(CheckWritable(Path("new/file")).ok());
  EXPECT_TRUE(fs::is_empty(Path("new")));
  folder_.Write("file", "x");
  EXPECT_FALSE(CheckWritable(Path("file/below")).ok());
}

TEST(RemoveFile, IsContentWithWhatIsNotThere) {
  const TemporaryFolder folder;
  const std::string path = folder.Write("x", "1");
  EXPECT_TRUE(RemoveFile(path).ok());
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_TRUE(RemoveFile(path).ok());
  folder.Write("full/y", "1");
  const absl::Status refused = RemoveFile(folder.Path("full"));
  EXPECT_FALSE(refused.ok());
  EXPECT_NE(refused.message().find(folder.Path("full")), absl::string_view::npos);
}

}  // namespace
}  // namespace penstock
