// `penstock profile measure` and `check` with a real worker.
#include <nlohmann/json.hpp>

#include "tests/system/up/up_fixture.h"

namespace penstock {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;

// A model of one layer that takes nothing to measure.
constexpr const char* kConfig = R"({"model_type": "gpt2", "n_layer": 1, "n_embd": 32, "n_head": 2,
  "n_positions": 128, "vocab_size": 256, "activation_function": "gelu_new", "resid_pdrop": 0, "embd_pdrop": 0,
  "attn_pdrop": 0, "torch_dtype": "float32"})";

TEST(ProfileTest, AMeasuredProfileIsCheckedOnPassesThatItWasNotFittedTo) {
  const TemporaryFolder folder;
  const std::string profile = folder.Path("profile.json");
  PenstockRun measure(folder, "measure",
                      {"profile", "measure", "--model", folder.Write("config.json", kConfig), "--seconds",
                       "1", "--threads", "1", "--out", profile});
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

}  // namespace
}  // namespace penstock
