// Routers that are not even, on ranks that divide the experts: training goes on, and the planner finds it,
// says it and plans with it.
#include <nlohmann/json.hpp>

#include "absl/strings/str_split.h"
#include "tests/system/up/up_fixture.h"

namespace penstock {
namespace {

using testing::HasSubstr;
using testing::Not;
using Json = nlohmann::json;

class ExpertsTest : public UpTest {
 protected:
  // Samples of one token, again and again: whatever a router has learnt, all tokens of a layer look the same
  // to it (the model has rotary positions), and go to the same expert.
  void SetUp() override {
    std::string lines;
    for (int sample = 0; sample < 200; ++sample) {
      Json tokens = Json::array();
      for (int token = 0; token < 20 + sample % 60; ++token) tokens.push_back(7);
      lines += Json{{"tokens", tokens}}.dump() + "\n";
    }
    ASSERT_NO_FATAL_FAILURE(Import({folder_.Write("same.jsonl", lines), "--format", "jsonl"}, Dataset()));
    folder_.Write("model/config.json", Json{{"model_type", "mixtral"},
                                            {"architectures", {"MixtralForCausalLM"}},
                                            {"vocab_size", 64},
                                            {"hidden_size", 32},
                                            {"intermediate_size", 48},
                                            {"num_hidden_layers", 2},
                                            {"num_attention_heads", 2},
                                            {"num_key_value_heads", 2},
                                            {"num_local_experts", 4},
                                            {"num_experts_per_tok", 1},
                                            {"max_position_embeddings", 256},
                                            {"rms_norm_eps", 1e-5},
                                            {"rope_theta", 10000.0},
                                            {"hidden_act", "silu"},
                                            {"sliding_window", nullptr},
                                            {"tie_word_embeddings", false}}
                                           .dump());
  }

  std::vector<std::string> Arguments(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"up",
                                          "--dataset",
                                          Dataset(),
                                          "--model",
                                          folder_.Path("model"),
                                          "--pp",
                                          "1",
                                          "--dp",
                                          "1",
                                          "--cp",
                                          "2",
                                          "--ep",
                                          "2",
                                          "--global-batch",
                                          "8",
                                          "--max-length",
                                          "256",
                                          "--iterations",
                                          "60",
                                          "--profile-seconds",
                                          "1",
                                          "--run-dir",
                                          RunDir()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  // Of the last iteration.
  Json LastMetrics() const {
    std::vector<std::string> lines =
        absl::StrSplit(ReadFile(RunDir() + "/metrics.jsonl").value_or(""), '\n', absl::SkipEmpty());
    return lines.empty() ? Json() : Json::parse(lines.back(), nullptr, /*allow_exceptions=*/false);
  }

  // Of the costs that the run ended with.
  Json Loads() const {
    const Json measured = Json::parse(ReadFile(RunDir() + "/measured.json").value_or("{}"), nullptr,
                                      /*allow_exceptions=*/false);
    return measured.value(Json::json_pointer("/job/profile/expertLoads"), Json::array());
  }
};

TEST_F(ExpertsTest, ARouterThatSendsAllTokensToOneExpertIsNamedAndPlannedFor) {
  PenstockRun up(folder_, "up", Arguments({}));
  ASSERT_EQ(up.Wait(), 0) << up.errors();
  EXPECT_THAT(up.output() + up.errors(),
              HasSubstr("of 2 ranks that divide experts the fullest has 2.00 times its share of rows"));
  const Json loads = Loads();
  ASSERT_EQ(loads.size(), 1) << loads;
  EXPECT_EQ(loads[0]["ranks"], 2);
  EXPECT_EQ(loads[0]["fullest"], 2);
  // In every layer one of two ranks has all rows, and one of four experts.
  const Json metrics = LastMetrics();
  EXPECT_EQ(metrics["fullest_expert_ranks"], Json({{"mean", 2}, {"worst", 2}, {"worst_layer", 1}}))
      << metrics;
  EXPECT_EQ(metrics["fullest_experts"], Json({{"mean", 4}, {"worst", 4}, {"worst_layer", 1}}));
}

TEST_F(ExpertsTest, CostsThatAreFixedDoNotFollowRouters) {
  PenstockRun up(folder_, "up", Arguments({"--fixed-costs"}));
  ASSERT_EQ(up.Wait(), 0) << up.errors();
  EXPECT_THAT(up.output() + up.errors(), Not(HasSubstr("that divide experts")));
}

}  // namespace
}  // namespace penstock
