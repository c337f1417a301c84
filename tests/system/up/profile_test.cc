// `penstock profile measure` and `check` with a real worker.
#include <nlohmann/json.hpp>
#include <string>

#include "tests/system/up/up_fixture.h"

namespace penstock {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;

// A model of one layer that takes nothing to measure.
constexpr const char* kConfig = R"({"model_type": "gpt2", "n_layer": 1, "n_embd": 32, "n_head": 2,
  "n_positions": 128, "vocab_size": 256, "activation_function": "gelu_new", "resid_pdrop": 0, "embd_pdrop": 0,
  "attn_pdrop": 0, "torch_dtype": "float32"})";

constexpr const char* kT5Config =
    R"({"model_type": "t5", "num_layers": 1, "num_decoder_layers": 1, "d_model": 32, "d_kv": 16,
  "num_heads": 2, "d_ff": 64, "vocab_size": 256, "relative_attention_num_buckets": 8, "dropout_rate": 0,
  "feed_forward_proj": "relu", "n_positions": 128, "torch_dtype": "float32"})";

TEST(ProfileTest, AMeasuredProfileIsCheckedOnPassesThatItWasNotFittedTo) {
  const TemporaryFolder folder;
  const std::string profile = folder.Path("profile.json");
  PenstockRun measure(folder, "measure",
                      {"profile", "measure", "--model", folder.Write("config.json", kConfig), "--seconds",
                       "1", "--threads", "1", "--rehearse", "0", "--out", profile});
  ASSERT_EQ(measure.Wait(), 0) << measure.errors();
  EXPECT_THAT(measure.output(), HasSubstr("measured by penstock-worker"));
  PenstockRun check(folder, "check",
                    {"profile", "check", profile, "--seconds", "1", "--threads", "1", "--json",
                     "--save-times", folder.Path("times.json")});
  ASSERT_EQ(check.Wait(), 0) << check.errors();
  const Json json = Json::parse(check.output(), nullptr, /*allow_exceptions=*/false);
  ASSERT_FALSE(json.is_discarded()) << check.output();
  EXPECT_GT(json["errors"][0]["passes"], 20);
  // Whatever the machine does meanwhile: what is foretold is of the right size.
  EXPECT_LT(json["errors"][0]["median"], 1.0);
  PenstockRun again(folder, "again",
                    {"profile", "check", profile, "--json", "--times", folder.Path("times.json")});
  ASSERT_EQ(again.Wait(), 0) << again.errors();
  EXPECT_EQ(again.output(), check.output());
}

// Of profiles with shares the check has some by itself.
TEST(ProfileTest, SharesOfContextRanksAreMeasuredAndChecked) {
  const TemporaryFolder folder;
  const std::string profile = folder.Path("profile.json");
  PenstockRun measure(folder, "measure",
                      {"profile", "measure", "--model", folder.Write("config.json", kConfig), "--seconds",
                       "1", "--threads", "1", "--rehearse", "0", "--cp", "2,4", "--out", profile});
  ASSERT_EQ(measure.Wait(), 0) << measure.errors();
  EXPECT_THAT(measure.output(), HasSubstr("shares of context ranks: 2, 4"));
  PenstockRun check(folder, "check", {"profile", "check", profile, "--seconds", "1", "--threads", "1"});
  ASSERT_EQ(check.Wait(), 0) << check.errors();
  EXPECT_THAT(check.output(), HasSubstr("shares of context ranks"));
  PenstockRun without(folder, "without",
                      {"profile", "check", profile, "--seconds", "1", "--threads", "1", "--cp", "1"});
  ASSERT_EQ(without.Wait(), 0) << without.errors();
  EXPECT_EQ(without.output().find("shares of context ranks"), std::string::npos);
}

// Of the profile, or where it is too large to be taken, of the warning; 0: of neither.
double TrainingFactorOf(const std::string& profile, const std::string& warnings) {
  const absl::StatusOr<std::string> json = ReadFile(profile);
  EXPECT_TRUE(json.ok()) << json.status();
  const double taken = Json::parse(json.value_or("{}"))["profile"].value("trainingFactor", 0.0);
  const std::string begin = "iterations took ";
  const size_t at = warnings.find(begin);
  return taken > 0 || at == std::string::npos ? taken : std::stod(warnings.substr(at + begin.size()));
}

// On two ranks, with a planner and workers of its own, which are gone afterwards. Ranks of such small models
// wait for each other for longer than they compute, the more the busier the machine is.
TEST(ProfileTest, AMeasuredProfileIsRehearsedAndHowMuchLongerTrainingTakesIsSaid) {
  const TemporaryFolder folder;
  for (const char* config : {kConfig, kT5Config}) {
    const std::string profile = folder.Path("profile.json");
    PenstockRun measure(folder, "measure",
                        {"profile", "measure", "--model", folder.Write("config.json", config), "--seconds",
                         "1", "--threads", "1", "--workers", "2", "--rehearse", "3", "--out", profile});
    ASSERT_EQ(measure.Wait(), 0) << measure.errors();
    EXPECT_THAT(measure.errors(), HasSubstr("now trained with for about as long"));
    const double factor = TrainingFactorOf(profile, measure.errors());
    EXPECT_GT(factor, 0.5) << measure.errors();
    EXPECT_LT(factor, 100) << measure.errors();
    PenstockRun show(folder, "show", {"profile", "show", profile});
    ASSERT_EQ(show.Wait(), 0) << show.errors();
    EXPECT_EQ(show.output().find("times what it takes alone") != std::string::npos, factor < 2) << factor;
  }
}

}  // namespace
}  // namespace penstock
