// `penstock dataset` as a user runs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

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
