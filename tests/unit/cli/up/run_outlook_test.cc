#include "planner/cli/up/run_outlook.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace penstock::cli {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

RunOutlook SomeOutlook() {
  RunOutlook outlook = {.samples = 1000, .global_batch = 50, .threads = 2};
  EXPECT_TRUE(
      google::protobuf::TextFormat::ParseFromString(R"pb(
                                                      model {
                                                        architecture: ARCHITECTURE_GPT
                                                        layers: 3
                                                        hidden: 64
                                                        heads: 4
                                                        vocab: 1000
                                                        dtype: DATA_TYPE_FLOAT32
                                                      }
                                                      mesh { pipeline: 2 data: 2 }
                                                      planning { memory_limit_bytes: 5000000000 }
                                                      profile {
                                                        embedding_parameter_bytes: 256000
                                                        layers { name: "layer" parameter_bytes: 200000 }
                                                        layers { name: "head" parameter_bytes: 256000 }
                                                      }
                                                      training { iterations: 40 }
                                                      first_iteration: 10)pb",
                                                    &outlook.job));
  return outlook;
}

TEST(RunOutlookTest, SaysWhatTheRunIsMadeOf) {
  // Tables, three layers, a head of its own: (256,000 + 600,000 + 256,000) / 4.
  EXPECT_THAT(
      Describe(SomeOutlook()),
      ElementsAre(HasSubstr("GPT, 3 layers of width 64, 4 heads, vocabulary 1,000, 278,000 parameters, "
                            "float32"),
                  HasSubstr("10 to 39, 50 samples each: 1.50 times through the data"),
                  HasSubstr("2 stages x 2 replicas: 4 workers, threads of each: 2")));
  RunOutlook tied = SomeOutlook();
  tied.job.mutable_model()->set_tied_head(true);
  tied.job.mutable_mesh()->set_context(4);
  EXPECT_THAT(Describe(tied), Contains(HasSubstr("214,000 parameters")));
  EXPECT_THAT(Describe(tied), Contains(HasSubstr("2 stages x 2 replicas x 4 context ranks: 16 workers")));
  tied.job.mutable_mesh()->set_expert(2);
  EXPECT_THAT(Describe(tied),
              Contains(HasSubstr("4 context ranks, experts divided over 2 of them: 16 workers")));
}

TEST(RunOutlookTest, SaysHowLargeSharesAreWhereTheyDiffer) {
  RunOutlook outlook = SomeOutlook();
  for (const uint32_t weight : {3, 1, 0, 2}) outlook.job.mutable_planning()->add_share_weights(weight);
  EXPECT_THAT(Describe(outlook), Contains(HasSubstr("of ranks by these weights: 3,1,0,2")));
  EXPECT_EQ(ToJson(outlook)["share_weights"], nlohmann::ordered_json({3, 1, 0, 2}));
  EXPECT_FALSE(ToJson(SomeOutlook()).contains("share_weights"));
}

TEST(RunOutlookTest, OfAMixtureEachTaskHasItsShareAndItsEpochs) {
  RunOutlook outlook = SomeOutlook();
  outlook.tasks = {{.name = "flan", .share = 0.75, .samples = 600, .dropped_samples = 100, .tokens = 12345},
                   {.name = "code", .share = 0.25, .samples = 400, .tokens = 999}};
  const std::vector<std::string> lines = Describe(outlook);
  EXPECT_THAT(lines, Contains(testing::EndsWith("10 to 39, 50 samples each")));
  // 30 iterations x 50 samples x 0.75 of 500; x 0.25 of 400.
  EXPECT_THAT(lines, Contains(HasSubstr("flan: 75 % of the samples of a batch; has 600 samples, 12,345 "
                                        "tokens: 2.25 epochs")));
  EXPECT_EQ(ToJson(outlook)["tasks"][1]["epochs"], 0.9375);
  EXPECT_FALSE(ToJson(SomeOutlook()).contains("tasks"));
}

TEST(RunOutlookTest, SaysWhatThePlanOfTheFirstBatchPromises) {
  RunOutlook outlook = SomeOutlook();
  outlook.plan = PlanSummary{.policy = "dynamic",
                             .micro_batches = 6,
                             .makespan_ms = 2500,
                             .bubble = 0.125,
                             .peak_memory_mb = 1234,
                             .schedule = "split-backward",
                             .layers_per_stage = {1, 2}};
  const std::vector<std::string> lines = Describe(outlook);
  ASSERT_THAT(lines, SizeIs(6));
  EXPECT_THAT(lines[3], HasSubstr("dynamic, schedule split-backward, layers 1 + 2; the first batch in 6 "
                                  "micro-batches, bubble 12.5 %"));
  EXPECT_THAT(lines[4], HasSubstr("1,234 MB of the fullest rank, which may take 5,000 MB"));
  for (const int64_t bytes : std::initializer_list<int64_t>{2'000'000'000, 7'000'000'000})
    outlook.job.mutable_planning()->add_rank_memory_limits()->set_bytes(bytes);
  EXPECT_THAT(Describe(outlook)[4], HasSubstr("1,234 MB of the fullest rank; ranks may take 5,000 MB; 2 of "
                                              "them 2,000 to 7,000 MB"));
  EXPECT_THAT(lines[5], HasSubstr("2500.0 ms an iteration planned, 1m15s for all"));
  EXPECT_EQ(ToJson(outlook)["plan"]["schedule"], "split-backward");
  EXPECT_EQ(ToJson(SomeOutlook())["plan"], nullptr);
  EXPECT_EQ(ToJson(SomeOutlook())["ranks"], 4);
}

}  // namespace
}  // namespace penstock::cli
