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

// What `penstock up --validate-every` finds on the ranks of a mesh.
class RankValidationTest : public ValidatedTest {
 protected:
  static constexpr int kIterations = 6;

  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(ValidatedTest::SetUp());
    ASSERT_NO_FATAL_FAILURE(
        WriteDataset("other", "what is validated is other text than what is trained on\n"));
    ASSERT_NO_FATAL_FAILURE(Import({absl::StrCat(PENSTOCK_SOURCE_DIR, "/deploy")}, folder_.Path("more")));
  }

  // Their loss is the same to the last digits, whatever ranks there are: 1e-9 is far above these.
  static constexpr double kTolerance = 1e-9;

  void Train(const std::string& run, const std::vector<std::string>& more) {
    std::vector<std::string> arguments =
        UpArguments({"--iterations", absl::StrCat(kIterations), "--checkpoint-every", "3", "--dtype",
                     "float64", "--run-dir", folder_.Path(run)});
    arguments.insert(arguments.end(), more.begin(), more.end());
    PenstockRun up(folder_, run, arguments);
    ASSERT_EQ(up.Wait(), 0) << up.errors();
    said_ = up.output() + up.errors();
  }

  std::vector<std::string> Validated(std::vector<std::string> more) const {
    more.insert(more.end(),
                {"--validate-every", "2", "--validation", folder_.Path("other") + "," + folder_.Path("more"),
                 "--validation-samples", "20"});
    return more;
  }

  // Lines of metrics.jsonl that have the field.
  std::vector<nlohmann::json> Metrics(const std::string& run, const std::string& field) const {
    std::istringstream lines(ReadFile(folder_.Path(run) + "/metrics.jsonl").value_or(""));
    std::vector<nlohmann::json> found;
    for (std::string line; std::getline(lines, line);) {
      const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
      if (json.is_object() && json.contains(field)) found.push_back(json);
    }
    return found;
  }

  // Of a run's last checkpoint, by `penstock evaluate`.
  nlohmann::json Evaluated(const std::string& run) {
    PenstockRun evaluate(
        folder_, "evaluate-" + run,
        {"evaluate", folder_.Path(run), "--dataset", folder_.Path("other") + "," + folder_.Path("more"),
         "--samples", "20", "--max-length", "256", "--json"});
    EXPECT_EQ(evaluate.Wait(), 0) << evaluate.errors();
    return nlohmann::json::parse(evaluate.output(), nullptr, /*allow_exceptions=*/false);
  }

  void ExpectTheLossThatEvaluateFinds(const std::string& run) {
    const std::vector<nlohmann::json> validated = Metrics(run, "validation_loss");
    ASSERT_EQ(validated.size(), 3U) << said_;
    for (size_t i = 0; i < validated.size(); ++i) EXPECT_EQ(validated[i]["iteration"], 2 * i + 1);
    const nlohmann::json evaluated = Evaluated(run);
    ASSERT_TRUE(evaluated.is_object());
    const nlohmann::json& last = validated.back();
    EXPECT_NEAR(last["validation_loss"], evaluated["loss"].get<double>(), kTolerance);
    for (const nlohmann::json& dataset : evaluated["datasets"]) {
      const std::string name = dataset["name"];
      EXPECT_NEAR(last["validation_tasks"][name], dataset["loss"].get<double>(), kTolerance) << name;
    }
  }

  std::string said_;
};

TEST_F(RankValidationTest, IsTheLossThatEvaluateFindsAndChangesNoBitOfTraining) {
  ASSERT_NO_FATAL_FAILURE(Train("validated", Validated({})));
  ASSERT_NO_FATAL_FAILURE(ExpectTheLossThatEvaluateFinds("validated"));
  ASSERT_NO_FATAL_FAILURE(Train("alone", {}));
  const std::vector<nlohmann::json> with = Metrics("validated", "loss"), without = Metrics("alone", "loss");
  ASSERT_EQ(with.size(), static_cast<size_t>(kIterations));
  ASSERT_EQ(without.size(), with.size());
  for (size_t i = 0; i < with.size(); ++i) {
    for (const char* field : {"loss", "gradient_norm", "learning_rate", "tokens", "planned_ms"})
      EXPECT_EQ(with[i][field], without[i][field]) << field << " of iteration " << i;
  }
}

TEST_F(RankValidationTest, StageGroupsFindTheSameLoss) {
  ASSERT_NO_FATAL_FAILURE(Train("groups", Validated({"--pp", "2", "--dp", "1", "--cp", "2"})));
  ExpectTheLossThatEvaluateFinds("groups");
  ASSERT_NO_FATAL_FAILURE(Train("tensors", Validated({"--pp", "1", "--dp", "2", "--tp", "2"})));
  ExpectTheLossThatEvaluateFinds("tensors");
}

TEST_F(RankValidationTest, GoesOnWhereARunIsResumed) {
  ASSERT_NO_FATAL_FAILURE(Train("whole", Validated({"--lr-decay", "constant"})));
  ASSERT_NO_FATAL_FAILURE(Train("halves", Validated({"--lr-decay", "constant", "--iterations", "3"})));
  PenstockRun up(
      folder_, "resumed",
      {"up", "--resume", "--run-dir", folder_.Path("halves"), "--iterations", absl::StrCat(kIterations)});
  ASSERT_EQ(up.Wait(), 0) << up.errors();
  const std::vector<nlohmann::json> whole = Metrics("whole", "loss"), halves = Metrics("halves", "loss");
  ASSERT_EQ(halves.size(), whole.size());
  for (size_t i = 0; i < whole.size(); ++i) {
    EXPECT_EQ(whole[i]["learning_rate"], halves[i]["learning_rate"]) << "iteration " << i;
    EXPECT_NEAR(whole[i]["loss"], halves[i]["loss"].get<double>(), kTolerance) << "iteration " << i;
  }
  EXPECT_NEAR(Metrics("halves", "validation_loss").back()["validation_loss"],
              Metrics("whole", "validation_loss").back()["validation_loss"].get<double>(), kTolerance);
}

TEST_F(RankValidationTest, KeepsTheBestCheckpointAndEndsWhereItGetsNoBetter) {
  const std::string run = folder_.Path("run");
  PenstockRun up(folder_, "up",
                 UpArguments({"--iterations", "100000", "--checkpoint-every", "5", "--lr", "1", "--min-lr",
                              "1", "--warmup", "0", "--validation", folder_.Path("other"), "--validate-every",
                              "5", "--patience", "2", "--run-dir", run, "--json"}));
  ASSERT_EQ(up.Wait(), 0) << up.errors();
  EXPECT_THAT(up.output() + up.errors(), HasSubstr("training ends: 2 validations in a row (--patience)"));
  const auto summary = nlohmann::json::parse(up.output(), nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(summary.is_object()) << up.output();
  PenstockRun evaluate(folder_, "evaluate",
                       {"evaluate", run + "/best", "--dataset", folder_.Path("other"), "--json"});
  ASSERT_EQ(evaluate.Wait(), 0) << evaluate.errors();
  const auto evaluated = nlohmann::json::parse(evaluate.output(), nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(evaluated.is_object()) << evaluate.output();
  EXPECT_NEAR(evaluated["loss"], summary["best_validation_loss"].get<double>(), 1e-4);
}

}  // namespace
}  // namespace penstock
