#include "worker/model/token_batch.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker/model_testing.h"

namespace penstock::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr TokenNeeds kAll = {.source = true, .target = true, .loss = true};

ModelConfig Gpt() {
  ModelConfig config = SmallConfig(DataType::kFloat32);
  config.vocab = 100;
  return config;
}

ModelConfig T5() {
  ModelConfig config = SmallT5Config(DataType::kFloat32);
  config.vocab = 100;
  config.decoder_start_token = 7;
  return config;
}

std::vector<int64_t> Values(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.flatten();
  return {flat.const_data_ptr<int64_t>(), flat.const_data_ptr<int64_t>() + flat.numel()};
}

TEST(TokenBatch, PadsBehindTheTokens) {
  const MicroBatch shape = MakeMicroBatch(Gpt(), {{1, 2}, {0, 4}}, Layout::kPadded);
  const auto batch = MakeTokenBatch(shape, {{11, 12, 13}, {21, 22, 23, 24}}, Gpt(), kAll, at::kCPU);
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_THAT(Values(batch->target.ids), ElementsAre(11, 12, 13, 0, 21, 22, 23, 24));
  EXPECT_THAT(Values(batch->target.positions), ElementsAre(0, 1, 2, 3, 0, 1, 2, 3));
  EXPECT_THAT(Values(batch->loss_positions), ElementsAre(0, 1, 4, 5, 6));
  EXPECT_THAT(Values(batch->labels), ElementsAre(12, 13, 22, 23, 24));
}

TEST(TokenBatch, PacksEndToEndAndNeverAsksForTheNextSample) {
  const MicroBatch shape = MakeMicroBatch(Gpt(), {{2, 1}, {0, 2}, {3, 0}}, Layout::kPacked);
  const auto batch = MakeTokenBatch(shape, {{11, 12, 13}, {21, 22}, {31, 32, 33}}, Gpt(), kAll, at::kCPU);
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_THAT(Values(batch->target.ids), ElementsAre(11, 12, 13, 21, 22, 31, 32, 33));
  EXPECT_THAT(Values(batch->target.positions), ElementsAre(0, 1, 2, 0, 1, 0, 1, 2));
  EXPECT_THAT(Values(batch->loss_positions), ElementsAre(1, 3));
  EXPECT_THAT(Values(batch->labels), ElementsAre(13, 22));
}

TEST(TokenBatch, OfConcatenatedRowsStartsPositionsAnew) {
  const MicroBatch shape = MakeMicroBatch(Gpt(), {{1, 1}, {0, 2}, {0, 3}}, Layout::kConcatenated);
  const auto batch = MakeTokenBatch(shape, {{11, 12}, {21, 22}, {31, 32, 33}}, Gpt(), kAll, at::kCPU);
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_THAT(Values(batch->target.ids), ElementsAre(11, 12, 21, 22, 0, 0, 0, 31, 32, 33, 0, 0, 0, 0));
  EXPECT_THAT(Values(batch->target.positions), ElementsAre(0, 1, 0, 1, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0));
  EXPECT_THAT(Values(batch->loss_positions), ElementsAre(0, 2, 7, 8));
  EXPECT_THAT(Values(batch->labels), ElementsAre(12, 22, 32, 33));
}

TEST(TokenBatch, OfT5ShiftsTheTargetAndCountsAllOfIt) {
  const MicroBatch shape = MakeMicroBatch(T5(), {{2, 1}, {0, 3}}, Layout::kPadded);
  const auto batch = MakeTokenBatch(shape, {{11, 12, 13}, {21, 22, 23}}, T5(), kAll, at::kCPU);
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_THAT(Values(batch->source.ids), ElementsAre(11, 12, 0, 0));
  EXPECT_THAT(Values(batch->target.ids), ElementsAre(7, 0, 0, 7, 21, 22));
  EXPECT_THAT(Values(batch->loss_positions), ElementsAre(0, 3, 4, 5));
  EXPECT_THAT(Values(batch->labels), ElementsAre(13, 21, 22, 23));
}

TEST(TokenBatch, HoldsWhatItsStageNeeds) {
  const MicroBatch shape = MakeMicroBatch(T5(), {{2, 1}}, Layout::kPacked);
  const auto make = [&](const StageRange& range) {
    return *MakeTokenBatch(shape, {{11, 12, 13}}, T5(), TokenNeedsOf(T5(), range), at::kCPU);
  };
  const TokenBatch first = make({0, 2, true, false});
  EXPECT_TRUE(first.source.ids.defined());
  EXPECT_FALSE(first.target.ids.defined() || first.labels.defined());
  const TokenBatch decoder = make({2, 1, false, false});
  EXPECT_TRUE(decoder.target.ids.defined());
  EXPECT_FALSE(decoder.source.ids.defined() || decoder.labels.defined());
  const TokenBatch last = make({3, 1, false, true});
  EXPECT_TRUE(last.labels.defined());
  EXPECT_FALSE(last.source.ids.defined() || last.target.ids.defined());
  EXPECT_FALSE(TokenNeedsOf(T5(), {1, 1, false, false}).any());
}

TEST(TokenBatch, CutsTokensBeyondThePlan) {
  const MicroBatch shape = MakeMicroBatch(Gpt(), {{1, 1}}, Layout::kPacked);
  const auto batch = MakeTokenBatch(shape, {{11, 12, 13}}, Gpt(), kAll, at::kCPU);
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_THAT(Values(batch->target.ids), ElementsAre(11, 12));
  EXPECT_THAT(Values(batch->labels), ElementsAre(12));
}

TEST(TokenBatch, OfOneTokenHasNoLoss) {
  const auto batch =
      MakeTokenBatch(MakeMicroBatch(Gpt(), {{0, 1}}, Layout::kPadded), {{5}}, Gpt(), kAll, at::kCPU);
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_THAT(Values(batch->labels), IsEmpty());
}

TEST(TokenBatch, NamesSampleAndTokenBeyondTheVocabulary) {
  const MicroBatch shape = MakeMicroBatch(Gpt(), {{1, 1}, {1, 2}}, Layout::kPacked);
  const auto batch = MakeTokenBatch(shape, {{1, 2}, {3, 4, 100}}, Gpt(), kAll, at::kCPU);
  EXPECT_EQ(batch.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(batch.status().message()), HasSubstr("sample 101: token 2 has id 100"));
}

TEST(TokenBatch, NamesTheSampleThatIsTooShortForThePlan) {
  const auto batch =
      MakeTokenBatch(MakeMicroBatch(Gpt(), {{1, 3}}, Layout::kPadded), {{1, 2, 3}}, Gpt(), kAll, at::kCPU);
  EXPECT_THAT(std::string(batch.status().message()),
              HasSubstr("sample 100: 4 tokens planned, the dataset has 3"));
}

TEST(TokenBatch, RejectsAShapeThatDoesNotFitTheSamples) {
  MicroBatch shape = MakeMicroBatch(Gpt(), {{1, 3}, {1, 1}}, Layout::kPadded);
  shape.target_length = 3;
  const auto narrow = MakeTokenBatch(shape, {{1, 2, 3, 4}, {1, 2}}, Gpt(), kAll, at::kCPU);
  EXPECT_THAT(std::string(narrow.status().message()), HasSubstr("4 tokens in a place for 3"));
  shape = MakeMicroBatch(Gpt(), {{1, 3}, {1, 1}}, Layout::kPacked);
  shape.target_cu_seqlens.pop_back();
  const auto packed = MakeTokenBatch(shape, {{1, 2, 3, 4}, {1, 2}}, Gpt(), kAll, at::kCPU);
  EXPECT_THAT(std::string(packed.status().message()), HasSubstr("target_cu_seqlens: expected 3"));
}

TEST(TokenBatch, OfAContextRankHasItsChunksWithTheirPlacesInTheSample) {
  MicroBatch shape = MakeMicroBatch(Gpt(), {{2, 6}, {0, 3}}, Layout::kPacked);
  shape.spans = {{0, 2}, {1, 1}};
  const Tokens tokens = {{11, 12, 13, 14, 15, 16, 17, 18}, {21, 22, 23}};
  const auto first = MakeTokenBatch(shape, {tokens[0], {}}, Gpt(), kAll, at::kCPU, {0, 2, 0, 1});
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_THAT(Values(first->target.ids), ElementsAre(11, 12, 17, 18));
  EXPECT_THAT(Values(first->target.positions), ElementsAre(0, 1, 6, 7));
  EXPECT_THAT(Values(first->loss_positions), ElementsAre(1, 2));
  EXPECT_THAT(Values(first->labels), ElementsAre(13, 18));
  const auto second = MakeTokenBatch(shape, tokens, Gpt(), kAll, at::kCPU, {1, 2, 0, 1});
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_THAT(Values(second->target.ids), ElementsAre(13, 14, 15, 16, 21, 22, 23));
  EXPECT_THAT(Values(second->target.positions), ElementsAre(2, 3, 4, 5, 0, 1, 2));
  EXPECT_THAT(Values(second->loss_positions), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(Values(second->labels), ElementsAre(14, 15, 16, 17, 22, 23));
}

TEST(TokenBatch, OfAContextRankDividesPaddingToo) {
  MicroBatch shape = MakeMicroBatch(Gpt(), {{0, 3}, {0, 8}}, Layout::kPadded);
  shape.spans = {{0, 2}, {0, 1}};
  const auto batch = MakeTokenBatch(shape, {{11, 12, 13}, {}}, Gpt(), kAll, at::kCPU, {1, 2, 0, 1});
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_THAT(Values(batch->target.ids), ElementsAre(13, 0, 0, 0));
  EXPECT_THAT(Values(batch->target.positions), ElementsAre(2, 3, 4, 5));
  EXPECT_THAT(Values(batch->loss_positions), IsEmpty());
}

TEST(TokenBatch, RefusesSpansThatCannotBe) {
  MicroBatch shape = MakeMicroBatch(T5(), {{4, 4}}, Layout::kPacked);
  shape.spans = {{0, 2}};
  const auto t5 = MakeTokenBatch(shape, {{1, 2, 3, 4, 5, 6, 7, 8}}, T5(), kAll, at::kCPU, {0, 2, 0, 1});
  EXPECT_THAT(std::string(t5.status().message()), HasSubstr("spans: the samples of a T5"));
  shape = MakeMicroBatch(Gpt(), {{1, 2}}, Layout::kPacked);
  shape.spans = {{0, 2}};
  const auto small = MakeTokenBatch(shape, {{1, 2, 3}}, Gpt(), kAll, at::kCPU, {0, 2, 0, 1});
  EXPECT_THAT(std::string(small.status().message()), HasSubstr("span of row 0"));
}

TEST(TokenBatch, WeightsAreOfTheTokensThatAreAskedForAndRunsOfTheirTasks) {
  MicroBatch shape = MakeMicroBatch(Gpt(), {{2, 2}, {0, 3}, {1, 1}}, Layout::kPacked);
  shape.tasks = {4, 4, 0};
  const std::vector<std::vector<float>> weights = {{0.5F, 0}, {9, 1, 0.25F}, {2}};
  const auto batch =
      MakeTokenBatch(shape, {{1, 2, 3, 4}, {5, 6, 7}, {8, 9}}, Gpt(), kAll, at::kCPU, {}, weights);
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_THAT(Values(batch->loss_positions), ElementsAre(1, 2, 4, 5, 7));
  EXPECT_EQ(batch->labels.scalar_type(), at::kInt) << "both take as much as labels without weights";
  EXPECT_THAT(Values(batch->labels.to(at::kLong)), ElementsAre(3, 4, 6, 7, 9));
  EXPECT_TRUE(batch->loss_weights.equal(at::tensor({0.5F, 0.0F, 1.0F, 0.25F, 2.0F})));
  ASSERT_EQ(batch->loss_runs.size(), 2u);
  EXPECT_EQ(batch->loss_runs[0].task, 4u);
  EXPECT_EQ(batch->loss_runs[0].positions, 4);
  EXPECT_EQ(batch->loss_runs[0].weight, 1.75);
  EXPECT_EQ(batch->loss_runs[1].task, 0u);
  EXPECT_EQ(batch->loss_runs[1].weight, 2);
  const auto few = MakeTokenBatch(shape, {{1, 2, 3, 4}, {5, 6, 7}, {8, 9}}, Gpt(), kAll, at::kCPU, {},
                                  {{1}, {1, 1, 1}, {1}});
  EXPECT_THAT(std::string(few.status().message()), HasSubstr("1 weights for 2 tokens of its target"));
}

}  // namespace
}  // namespace penstock::worker
