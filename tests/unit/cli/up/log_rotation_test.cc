#include "planner/cli/up/log_rotation.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/temporary_folder.h"

namespace penstock::cli {
namespace {

const absl::Time kBegin = absl::FromUnixSeconds(1000);

std::string Read(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A process that has its log open for appending.
class Log {
 public:
  explicit Log(const std::string& path) : file_(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600)) {}
  ~Log() { close(file_); }
  void Write(const std::string& text) const {
    EXPECT_EQ(write(file_, text.data(), text.size()), text.size());
  }

 private:
  const int file_;
};

TEST(LogRotationTest, WhatIsTooLargeMovesOnAndTheProcessGoesOnWriting) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/rank-0.log";
  const Log log(path);
  LogRotation rotation(folder.path(), {.most_bytes = 10, .files = 2, .every = absl::Seconds(10)});
  for (int round = 0; round < 4; ++round) {
    log.Write("the text of round " + std::to_string(round));
    rotation.Look(kBegin + round * absl::Seconds(10));
    EXPECT_EQ(Read(path), "");
  }
  log.Write("short");
  rotation.Look(kBegin + absl::Seconds(100));
  EXPECT_EQ(Read(path), "short");
  EXPECT_EQ(Read(path + ".1"), "the text of round 3");
  EXPECT_EQ(Read(path + ".2"), "the text of round 2");
  EXPECT_FALSE(std::filesystem::exists(path + ".3"));
}

TEST(LogRotationTest, LooksNowAndThenAndAtLogsAlone) {
  const TemporaryFolder folder;
  const Log log(folder.path() + "/planner.log"), other(folder.path() + "/metrics.jsonl");
  LogRotation rotation(folder.path(), {.most_bytes = 3, .files = 2, .every = absl::Seconds(10)});
  rotation.Look(kBegin);
  log.Write("much");
  other.Write("much");
  rotation.Look(kBegin + absl::Seconds(9));
  EXPECT_EQ(Read(folder.path() + "/planner.log"), "much");
  rotation.Look(kBegin + absl::Seconds(10));
  EXPECT_EQ(Read(folder.path() + "/planner.log"), "");
  EXPECT_EQ(Read(folder.path() + "/metrics.jsonl"), "much");
}

TEST(LogRotationTest, AFolderThatIsNotThereIsNoTrouble) {
  LogRotation rotation("/no/such/folder");
  rotation.Look(kBegin);
}

}  // namespace
}  // namespace penstock::cli
