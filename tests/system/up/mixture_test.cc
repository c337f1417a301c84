// Training on a mixture: each task has its share, a run that is killed and gone on with sees the same
// samples.
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/system/up/up_fixture.h"

namespace penstock {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

constexpr uint64_t kBatch = 16;

class MixtureTest : public UpTest {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(UpTest::SetUp());
    ASSERT_NO_FATAL_FAILURE(Import({absl::StrCat(PENSTOCK_SOURCE_DIR, "/planner/cli")}, Code()));
  }

  std::string Code() const { return folder_.Path("code"); }

  // 11 or 12 of 16 samples are text.
  std::vector<std::string> MixArguments(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = UpArguments(more);
    const auto dataset = std::ranges::find(arguments, "--dataset");
    *dataset = "--mix";
    *(dataset + 1) = absl::StrCat(Dataset(), "=0.7,", Code(), "=0.3");
    return arguments;
  }

  static std::vector<Json> Lines(const std::string& run) {
    std::istringstream text(ReadFile(run + "/metrics.jsonl").value_or(""));
    std::vector<Json> lines;
    for (std::string line; std::getline(text, line);)
      lines.push_back(Json::parse(line, nullptr, /*allow_exceptions=*/false));
    return lines;
  }

  // What was trained on, and the loss: of each iteration what counts, which is its last line.
  static std::map<uint64_t, Json> Trained(const std::string& run) {
    std::map<uint64_t, Json> trained;
    for (const Json& line : Lines(run)) {
      if (!line.contains("loss")) continue;
      trained[line["iteration"]] = {
          {"loss", line["loss"]}, {"loss_tokens", line["loss_tokens"]}, {"tasks", line["tasks"]}};
    }
    return trained;
  }

  static uint64_t SumOf(const Json& tasks, const char* count) {
    uint64_t sum = 0;
    for (const Json& task : tasks) sum += task[count].get<uint64_t>();
    return sum;
  }

  size_t EventFiles(const std::string& run) const {
    const std::filesystem::directory_iterator files(run + "/tensorboard");
    return std::distance(begin(files), end(files));
  }
};

TEST_F(MixtureTest, AKilledRunGoesOnWithTheSameSamplesOfEachTask) {
  const auto arguments = [&](const std::string& run_dir) {
    return MixArguments({"--iterations", "40", "--checkpoint-every", "8", "--json", "--run-dir", run_dir});
  };
  const std::string whole_run = folder_.Path("whole");
  PenstockRun whole(folder_, "whole", arguments(whole_run));
  ASSERT_EQ(whole.Wait(), 0) << whole.errors();
  EXPECT_THAT(whole.errors(), HasSubstr("  task        text: 70 % of the samples of a batch"));
  const std::map<uint64_t, Json> expected = Trained(whole_run);
  ASSERT_EQ(expected.size(), 40u);
  for (const auto& [iteration, line] : expected) {
    EXPECT_EQ(SumOf(line["tasks"], "samples"), kBatch);
    // What is counted here is what the workers' loss counts.
    EXPECT_EQ(SumOf(line["tasks"], "loss_tokens"), line["loss_tokens"]) << iteration;
  }
  const Json tasks = Json::parse(whole.output(), nullptr, /*allow_exceptions=*/false)["tasks"];
  EXPECT_NEAR(tasks["text"]["samples"].get<double>(), 0.7 * 40 * kBatch, 3);
  EXPECT_EQ(SumOf(tasks, "samples"), 40 * kBatch);

  PenstockRun first(folder_, "first", arguments(RunDir()));
  first.WaitForText("iteration 10/");
  KillOne(RunDir(), "--rank=2");
  first.WaitForText("iteration 20/");
  first.process().Signal(SIGKILL);
  first.Wait();
  PenstockRun second(folder_, "second", {"up", "--resume", "--run-dir", RunDir()});
  ASSERT_EQ(second.Wait(), 0) << second.errors();
  EXPECT_EQ(Trained(RunDir()), expected);
  EXPECT_EQ(EventFiles(whole_run), 1u);
  EXPECT_EQ(EventFiles(RunDir()), 2u);

  PenstockRun other(folder_, "other",
                    {"up", "--resume", "--run-dir", RunDir(), "--iterations", "50", "--mix",
                     absl::StrCat(Dataset(), "=0.5,", Code(), "=0.5")});
  EXPECT_EQ(other.Wait(), 2);
  EXPECT_THAT(other.errors(), HasSubstr("--mix text=0.5,code=0.5: the run in"));
}

TEST_F(MixtureTest, EachTaskIsValidatedByItself) {
  PenstockRun up(folder_, "up",
                 MixArguments({"--iterations", "4", "--validation",
                               absl::StrCat(Dataset(), ",other:", Code()), "--validation-samples", "5"}));
  ASSERT_EQ(up.Wait(), 0) << up.errors();
  EXPECT_THAT(up.output() + up.errors(), HasSubstr("validation after iteration 3: loss "));
  const Json validation = Lines(RunDir()).back();
  for (const auto& [name, path] : {std::pair("text", Dataset()), std::pair("other", Code())}) {
    PenstockRun evaluate(folder_, absl::StrCat("evaluate-", name),
                         {"evaluate", RunDir() + "/best", "--dataset", path, "--samples", "5", "--max-length",
                          "256", "--json"});
    ASSERT_EQ(evaluate.Wait(), 0) << evaluate.errors();
    const Json alone = Json::parse(evaluate.output(), nullptr, /*allow_exceptions=*/false);
    EXPECT_NEAR(validation["validation_tasks"][name], alone["loss"].get<double>(), 1e-6) << name;
  }
}

}  // namespace
}  // namespace penstock
