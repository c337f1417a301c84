// `penstock dataset` as a user runs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/process/child_process.h"
#include "tests/integration/cli/penstock_process.h"

namespace penstock {
namespace {

using Json = nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

class DatasetCommands : public testing::Test {
 protected:
  Ended Import(const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"dataset", "import", "--out", Path("data/d")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return penstock_.Run(arguments);
  }
  void ImportLines() {
    const std::string lines = penstock_.folder().Write(
        "train.jsonl",
        "{\"tokens\": [1, 2, 3]}\n{\"input\": [4, 5], \"target\": [900]}\n{\"text\": \"ab\"}\n");
    ASSERT_EQ(Import({lines}).code, 0);
  }
  std::string Path(const std::string& name) { return penstock_.folder().Path(name); }

  Penstock penstock_;
};

TEST_F(DatasetCommands, InfoCountsWhatWasImported) {
  ImportLines();
  const Ended text = penstock_.Run({"dataset", "info", Path("data/d")});
  EXPECT_EQ(text.code, 0) << text.errors;
  EXPECT_THAT(text.output, AllOf(HasSubstr("3 (1 with an input)"), HasSubstr("uint16")));
  const Json json = Json::parse(penstock_.Run({"dataset", "info", Path("data/d"), "--json"}).output);
  EXPECT_EQ(json["samples"], 3);
  EXPECT_EQ(json["input_tokens"], 2);
  EXPECT_EQ(json["target_tokens"], 6);
  EXPECT_EQ(json["largest_token"], 900);
}

TEST_F(DatasetCommands, LengthsShowsQuantilesAndAHistogram) {
  ImportLines();
  const Ended text = penstock_.Run({"dataset", "lengths", Path("data/d")});
  EXPECT_EQ(text.code, 0) << text.errors;
  EXPECT_THAT(text.output, AllOf(HasSubstr("3 samples, 8 tokens"), HasSubstr("50%"), HasSubstr("####")));
  const Json json = Json::parse(penstock_.Run({"dataset", "lengths", Path("data/d"), "--json"}).output);
  EXPECT_EQ(json["quantiles"].size(), 8u);
  EXPECT_EQ(json["histogram"][0]["samples"], 3);
}

TEST_F(DatasetCommands, LengthsWritesCsvThatPlanReads) {
  ImportLines();
  ASSERT_EQ(penstock_.Run({"dataset", "lengths", Path("data/d"), "--csv", Path("l.csv")}).code, 0);
  EXPECT_EQ(penstock_.folder().Read("l.csv"), "input_tokens,target_tokens\n0,3\n2,1\n0,2\n");
}

TEST_F(DatasetCommands, ImportTakesFoldersOfText) {
  penstock_.folder().Write("docs/a.md", "# Title\nsome text\n");
  const Ended ended = Import({Path("docs"), "--json"});
  ASSERT_EQ(ended.code, 0) << ended.errors;
  EXPECT_EQ(Json::parse(ended.output)["samples"], 1);
}

TEST_F(DatasetCommands, ImportNamesTheLineThatIsWrongAndLeavesNothing) {
  const Ended ended =
      Import({penstock_.folder().Write("bad.jsonl", "{\"tokens\": [1]}\n{\"tokens\": [-1]}\n")});
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.errors, AllOf(HasSubstr("bad.jsonl', line 2: token -1 is negative"),
                                  HasSubstr("penstock dataset import")));
  EXPECT_TRUE(std::filesystem::is_empty(Path("data")));
}

// Somewhere in its first file, or before its second one, from which nothing ever comes.
TEST_F(DatasetCommands, AnImportThatIsKilledGoesOnWithTheSameCommand) {
  std::string lines;
  for (int i = 0; i < 20000; ++i) absl::StrAppend(&lines, "{\"tokens\": [", i, ", ", 2 * i, "]}\n");
  const std::string first = penstock_.folder().Write("a.jsonl", lines);
  const std::string second = Path("b.jsonl");
  ASSERT_EQ(mkfifo(second.c_str(), 0600), 0);
  const std::vector<std::string> files = {first, second, "--save-every-seconds", "0"};
  ChildOptions killed = {.arguments = {PENSTOCK_BINARY, "dataset", "import", "--out", Path("data/d")},
                         .log_path = Path("killed.log")};
  killed.arguments.insert(killed.arguments.end(), files.begin(), files.end());
  auto import = ChildProcess::Start(killed);
  ASSERT_TRUE(import.ok()) << import.status();
  const absl::Time deadline = absl::Now() + absl::Seconds(kSanitized ? 120 : 30);
  while (!std::filesystem::exists(Path("data/d.import.json"))) {
    ASSERT_LT(absl::Now(), deadline) << penstock_.folder().Read("killed.log");
    ASSERT_FALSE((*import)->WaitFor(absl::Milliseconds(5)).has_value())
        << penstock_.folder().Read("killed.log");
  }
  (*import)->Signal(SIGKILL);
  ASSERT_TRUE((*import)->WaitFor(absl::Seconds(30)).has_value());

  std::filesystem::remove(second);
  penstock_.folder().Write("b.jsonl", "{\"tokens\": [7]}\n");
  const Ended again = Import(files);
  EXPECT_EQ(again.code, 0) << again.errors;
  EXPECT_THAT(again.errors,
              AllOf(HasSubstr("penstock dataset import: goes on"), HasSubstr(" samples are there")));
  EXPECT_THAT(again.output, HasSubstr("imported 20001 samples"));
  ASSERT_EQ(penstock_.Run({"dataset", "import", "--out", Path("data/e"), first, second}).code, 0);
  for (const char* extension : {".bin", ".idx"}) {
    EXPECT_TRUE(penstock_.folder().Read(absl::StrCat("data/d", extension)) ==
                penstock_.folder().Read(absl::StrCat("data/e", extension)))
        << extension;
  }
  size_t left = 0;
  for (const auto& entry : std::filesystem::directory_iterator(Path("data"))) left += entry.exists() ? 1 : 0;
  EXPECT_EQ(left, 4u);
}

TEST_F(DatasetCommands, AnImportSaysWhyItBeginsAnew) {
  const std::string good = penstock_.folder().Write("good.jsonl", "{\"tokens\": [1]}\n");
  const std::string bad = penstock_.folder().Write("bad.jsonl", "{\"tokens\": [-1]}\n");
  const Ended ended = Import({good, bad, "--save-every-seconds", "0"});
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.errors, HasSubstr("the same command goes on there"));
  penstock_.folder().Write("bad.jsonl", "{\"tokens\": [2]}\n");
  const Ended other = Import({good, bad, "--vocab", "9"});
  EXPECT_EQ(other.code, 0) << other.errors;
  EXPECT_THAT(other.errors,
              HasSubstr("begins anew, not where the import before it ended: its --vocab was different"));
}

TEST_F(DatasetCommands, ATruncatedDatasetIsRefusedWithTheOffset) {
  ImportLines();
  std::filesystem::resize_file(Path("data/d.idx"), 40);
  const Ended ended = penstock_.Run({"dataset", "info", Path("data/d")});
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.errors,
              AllOf(HasSubstr("d.idx', offset 40: found the end of the file"), HasSubstr("expected it at")));
}

TEST_F(DatasetCommands, MissingFlagsAndFilesAreNamed) {
  EXPECT_THAT(penstock_.Run({"dataset", "import", "x"}).errors, HasSubstr("--out is required"));
  EXPECT_EQ(Import({Path("absent.jsonl")}).code, 2);
  const Ended ended = penstock_.Run({"dataset", "info", Path("absent")});
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.errors, HasSubstr("absent.idx"));
}

}  // namespace
}  // namespace penstock
