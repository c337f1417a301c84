// `penstock profile` as a user runs it, without a worker.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

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

}  // namespace
}  // namespace penstock
