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

constexpr int64_t kVocab = 100;

std::vector<int64_t> Values(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.flatten();
  return {flat.const_data_ptr<int64_t>(), flat.const_data_ptr<int64_t>() + flat.numel()};
}

TEST(TokenBatch, PadsBehindTheTokens) {
  const MicroBatch shape = MakeMicroBatch({{1, 2}, {0, 4}}, Layout::kPadded);
  const auto batch = MakeTokenBatch(shape, {{11, 12, 13}, {21, 22, 23, 24}}, kVocab, at::kCPU);
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_EQ(batch->inputs.sizes(), at::IntArrayRef({2, 4}));
  EXPECT_THAT(Values(batch->inputs), ElementsAre(11, 12, 13, 0, 21, 22, 23, 24));
  EXPECT_THAT(Values(batch->positions), ElementsAre(0, 1, 2, 3, 0, 1, 2, 3));
  EXPECT_THAT(Values(batch->loss_positions), ElementsAre(0, 1, 4, 5, 6));
  EXPECT_THAT(Values(batch->labels), ElementsAre(12, 13, 22, 23, 24));
}

TEST(TokenBatch, PacksEndToEndAndNeverAsksForTheNextSample) {
  const MicroBatch shape = MakeMicroBatch({{2, 1}, {0, 2}, {3, 0}}, Layout::kPacked);
  const auto batch = MakeTokenBatch(shape, {{11, 12, 13}, {21, 22}, {31, 32, 33}}, kVocab, at::kCPU);
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_EQ(batch->inputs.sizes(), at::IntArrayRef({8}));
  EXPECT_THAT(Values(batch->inputs), ElementsAre(11, 12, 13, 21, 22, 31, 32, 33));
  EXPECT_THAT(Values(batch->positions), ElementsAre(0, 1, 2, 0, 1, 0, 1, 2));
  EXPECT_THAT(Values(batch->loss_positions), ElementsAre(1, 3));
  EXPECT_THAT(Values(batch->labels), ElementsAre(13, 22));
}

TEST(TokenBatch, CutsTokensBeyondThePlan) {
  const MicroBatch shape = MakeMicroBatch({{1, 1}}, Layout::kPacked);
  const auto batch = MakeTokenBatch(shape, {{11, 12, 13}}, kVocab, at::kCPU);
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_THAT(Values(batch->inputs), ElementsAre(11, 12));
  EXPECT_THAT(Values(batch->labels), ElementsAre(12));
}

TEST(TokenBatch, OfOneTokenHasNoLoss) {
  const auto batch = MakeTokenBatch(MakeMicroBatch({{0, 1}}, Layout::kPadded), {{5}}, kVocab, at::kCPU);
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_THAT(Values(batch->labels), IsEmpty());
}

TEST(TokenBatch, NamesSampleAndTokenBeyondTheVocabulary) {
  const MicroBatch shape = MakeMicroBatch({{1, 1}, {1, 2}}, Layout::kPacked);
  const auto batch = MakeTokenBatch(shape, {{1, 2}, {3, 4, 100}}, kVocab, at::kCPU);
  EXPECT_EQ(batch.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(batch.status().message()), HasSubstr("sample 101: token 2 has id 100"));
}

TEST(TokenBatch, NamesTheSampleThatIsTooShortForThePlan) {
  const auto batch = MakeTokenBatch(MakeMicroBatch({{1, 3}}, Layout::kPadded), {{1, 2, 3}}, kVocab, at::kCPU);
  EXPECT_THAT(std::string(batch.status().message()),
              HasSubstr("sample 100: 4 tokens planned, the dataset has 3"));
}

TEST(TokenBatch, RejectsAShapeThatDoesNotFitTheSamples) {
  MicroBatch shape = MakeMicroBatch({{1, 3}, {1, 1}}, Layout::kPadded);
  shape.target_length = 3;
  const auto narrow = MakeTokenBatch(shape, {{1, 2, 3, 4}, {1, 2}}, kVocab, at::kCPU);
  EXPECT_THAT(std::string(narrow.status().message()), HasSubstr("4 tokens in a place for 3"));
  shape = MakeMicroBatch({{1, 3}, {1, 1}}, Layout::kPacked);
  shape.target_cu_seqlens.pop_back();
  const auto packed = MakeTokenBatch(shape, {{1, 2, 3, 4}, {1, 2}}, kVocab, at::kCPU);
  EXPECT_THAT(std::string(packed.status().message()), HasSubstr("cu_seqlens: expected 3"));
}

}  // namespace
}  // namespace penstock::worker
