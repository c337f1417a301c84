// `penstock profile` as a user runs it, without a worker.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "common/files/files.h"
#include "tests/integration/cli/penstock_process.h"

namespace penstock {
namespace {

using Json = nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

// Of the profile that WriteProfile writes; of whatever durations.
constexpr const char* kTimes = R"({"disturbance": "", "passes": [
  {"part": "layer", "pass": "forward", "recompute": "none", "packed": true, "samples": [[0, 20], [0, 30]],
   "loss_tokens": 40, "duration_ns": 1e6},
  {"part": "layer", "pass": "backward", "recompute": "full", "packed": false, "samples": [[0, 20], [0, 20]],
   "loss_tokens": 0, "duration_ns": 2e6}]})";

class ProfileCommand : public testing::Test {
 protected:
  Ended Check(const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"profile", "check", penstock_.WriteProfile(), "--times",
                                          penstock_.folder().Write("times.json", kTimes)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return penstock_.Run(arguments);
  }

  Penstock penstock_;
};

TEST_F(ProfileCommand, CheckSaysHowFarOffAProfileIs) {
  const Ended ended = Check({});
  EXPECT_EQ(ended.code, 0) << ended.errors;
  EXPECT_THAT(ended.output, AllOf(HasSubstr("error of the profile"), HasSubstr("95th percentile"),
                                  HasSubstr("full recompute"), HasSubstr("worst: layer, ")));
}

TEST_F(ProfileCommand, CheckFailsAboveALimit) {
  const Ended ended = Check({"--limit", "0.001"});
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.errors, HasSubstr("--limit 0.001: the median of the errors is "));
  EXPECT_EQ(Check({"--limit-95", "0.001"}).code, 1);
  EXPECT_EQ(Check({"--limit", "1e9", "--limit-95", "1e9"}).code, 0);
}

TEST_F(ProfileCommand, CheckSpeaksJson) {
  const Ended ended = Check({"--json"});
  const Json json = Json::parse(ended.output, nullptr, /*allow_exceptions=*/false);
  ASSERT_FALSE(json.is_discarded()) << ended.output;
  EXPECT_EQ(json["errors"][0]["of"], "all");
  EXPECT_EQ(json["errors"][0]["passes"], 2);
}

TEST_F(ProfileCommand, CheckNamesTheFileThatIsWrong) {
  const Ended none = penstock_.Run({"profile", "check", penstock_.WriteProfile(), "--times", "nowhere.json"});
  EXPECT_EQ(none.code, 2);
  EXPECT_THAT(none.errors, AllOf(HasSubstr("--times"), HasSubstr("nowhere.json")));
  const Ended other = penstock_.Run({"profile", "check", "nowhere.json"});
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.errors, HasSubstr("nowhere.json"));
}

TEST_F(ProfileCommand, MeasureRefusesWhatHasNoTimes) {
  const Ended simulated =
      penstock_.Run({"profile", "check", penstock_.WriteProfile(), "--device", "simulated"});
  EXPECT_EQ(simulated.code, 2);
  EXPECT_THAT(simulated.errors, HasSubstr("--device simulated"));
  const Ended nowhere = penstock_.Run({"profile", "measure", "--model", "nowhere"});
  EXPECT_EQ(nowhere.code, 2);
  EXPECT_THAT(nowhere.errors, AllOf(HasSubstr("--model"), HasSubstr("nowhere")));
}

// Qwen3 30B-A3B with dense layers between those with experts.
TEST_F(ProfileCommand, AnAnalyticProfileOfAModelWithDenseLayersIsPlannedWith) {
  const std::string profile = penstock_.folder().Path("some_experts.json");
  const std::string lengths = penstock_.WriteLengths(64);
  const std::vector<std::string> analytic = {
      "profile",        "analytic", "--model", PENSTOCK_EXAMPLES "/qwen3_30b_a3b.json",
      "--dense-layers", "1,3",      "--out",   profile};
  std::vector<std::string> wide = analytic;
  wide.insert(wide.end(), {"--dense-ffn", "6144", "--memory-gb", "141"});
  const Ended made = penstock_.Run(wide);
  ASSERT_EQ(made.code, 0) << made.errors;
  EXPECT_THAT(made.output,
              AllOf(HasSubstr("not measured: accelerators of 200 TFLOP/s"), HasSubstr("141 GB")));
  const Ended show = penstock_.Run({"profile", "show", profile, "--json"});
  ASSERT_EQ(show.code, 0) << show.errors;
  const Json figures = Json::parse(show.output, nullptr, /*allow_exceptions=*/false)["figures"];
  EXPECT_TRUE(figures.contains("dense layer, forward, ms")) << figures.dump();

  const Ended plan = penstock_.Run({"plan", "--profile", profile, "--lengths", lengths, "--rows", "0:64",
                                    "--pp", "2", "--dp", "1", "--cp", "8", "--ep", "8",
                                    "--shard-optimizer-state", "--max-length", "2048", "--json"});
  ASSERT_EQ(plan.code, 0) << plan.errors;
  const double wide_ms = Json::parse(plan.output, nullptr, /*allow_exceptions=*/false)["makespan_ms"];

  ASSERT_EQ(penstock_.Run(analytic).code, 0);
  EXPECT_THAT(penstock_.Run({"profile", "compare", profile, profile}).output, HasSubstr("dense layer"));
  std::vector<std::string> refused = {
      "profile",        "analytic", "--model", PENSTOCK_EXAMPLES "/gpt_7b.json",
      "--dense-layers", "1",        "--out",   profile};
  const Ended without_experts = penstock_.Run(refused);
  EXPECT_EQ(without_experts.code, 2);
  EXPECT_THAT(without_experts.errors, HasSubstr("job.model.dense_layers"));
  EXPECT_GT(wide_ms, 0);
}

TEST_F(ProfileCommand, ShowAndCompareSayHowEfficientTokensAre) {
  const std::string profile = penstock_.WriteProfile();
  Json file = Json::parse(*ReadFile(profile));
  file["profile"]["layers"][0]["forward"]["efficiency"] = {{{"tokens", 100}, {"factor", 1.25}},
                                                           {{"tokens", 2000}, {"factor", 1}}};
  const std::string with = penstock_.folder().Write("with.json", file.dump());
  const std::string line = "efficiency    layer, forward: a token takes 1.25 at 100, 1 at 2,000 tokens\n";
  EXPECT_THAT(penstock_.Run({"profile", "show", with}).output, HasSubstr(line));
  const std::string compared = penstock_.Run({"profile", "compare", profile, with}).output;
  EXPECT_THAT(compared, HasSubstr("with.json:\n" + line));
  EXPECT_THAT(compared, HasSubstr(profile + ": a token takes as long among many as among few\n"));
  const Json shown = Json::parse(penstock_.Run({"profile", "show", with, "--json"}).output);
  EXPECT_EQ(shown["efficiency"]["layer, forward"][0]["factor"], 1.25);
}

}  // namespace
}  // namespace penstock
