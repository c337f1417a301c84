// Training that is validated: the best checkpoint is kept, and training ends where it gets no better.
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/system/up/up_fixture.h"

namespace penstock {
namespace {

using testing::HasSubstr;

class ValidatedTest : public UpTest {
 protected:
  void WriteDataset(const std::string& name, const std::string& text) const {
    PenstockRun import(
        folder_, name,
        {"dataset", "import", "--out", folder_.Path(name), folder_.Write(name + ".txt", text)});
    ASSERT_EQ(import.Wait(), 0) << import.errors();
  }

  std::vector<double> ValidationLosses(const std::string& run) const {
    std::istringstream lines(ReadFile(run + "/metrics.jsonl").value_or(""));
    std::vector<double> losses;
    for (std::string line; std::getline(lines, line);) {
      const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
      if (json.is_object() && json.contains("validation_loss")) losses.push_back(json["validation_loss"]);
    }
    return losses;
  }
};

TEST_F(ValidatedTest, TheBestCheckpointIsKeptAndEvaluatesToTheLossThatWasSaid) {
  ASSERT_NO_FATAL_FAILURE(WriteDataset("other", "what is validated is other text than what is trained on\n"));
  const std::string run = folder_.Path("run");
  PenstockRun up(folder_, "up",
                 UpArguments({"--iterations", "20", "--checkpoint-every", "5", "--validation",
                              folder_.Path("other"), "--run-dir", run, "--json"}));
  ASSERT_EQ(up.Wait(), 0) << up.errors();
  EXPECT_THAT(up.errors(), HasSubstr("validation after iteration 19: loss "));
  const auto summary = nlohmann::json::parse(up.output(), nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(summary.is_object()) << up.output();
  // A machine that is slow may pass over some, but never the last.
  const std::vector<double> losses = ValidationLosses(run);
  ASSERT_FALSE(losses.empty());
  EXPECT_EQ(summary["best_validation_loss"], *std::ranges::min_element(losses));
  PenstockRun evaluate(folder_, "evaluate",
                       {"evaluate", run + "/best", "--dataset", folder_.Path("other"), "--json"});
  ASSERT_EQ(evaluate.Wait(), 0) << evaluate.errors();
  const auto evaluated = nlohmann::json::parse(evaluate.output(), nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(evaluated.is_object()) << evaluate.output();
  EXPECT_NEAR(evaluated["loss"], summary["best_validation_loss"].get<double>(), 1e-6);
  PenstockRun generate(folder_, "generate", {"generate", run + "/best", "what is", "--max-tokens", "5"});
  ASSERT_EQ(generate.Wait(), 0) << generate.errors();
  EXPECT_GE(generate.output().size(), 6U) << "five bytes and the end of the line";
}

TEST_F(ValidatedTest, TrainingEndsWhereItGetsNoBetter) {
  // With such a rate it never does.
  ASSERT_NO_FATAL_FAILURE(WriteDataset("other", "what is validated is other text than what is trained on\n"));
  const std::string run = folder_.Path("run");
  PenstockRun up(folder_, "up",
                 UpArguments({"--iterations", "100000", "--checkpoint-every", "5", "--lr", "1", "--min-lr",
                              "1", "--warmup", "0", "--validation", folder_.Path("other"), "--patience", "2",
                              "--run-dir", run}));
  ASSERT_EQ(up.Wait(), 0) << up.errors();
  EXPECT_THAT(up.output() + up.errors(), HasSubstr("training ends: 2 validations in a row (--patience)"));
  EXPECT_LT(ValidationLosses(run).size(), 100U);
}

}  // namespace
}  // namespace penstock
