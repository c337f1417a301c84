#include "worker/model/loss_head.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/support/thread_stage_group.h"
#include "worker/model/head_chunk.h"

namespace penstock::worker {
namespace {

double LargestDifference(const at::Tensor& left, const at::Tensor& right) {
  return (left - right).abs().max().item<double>();
}

// 700 positions of 32768 logits each are more than one chunk.
TEST(LossHead, ChunksAddUpToTheWhole) {
  constexpr int64_t kVocab = 32768;
  constexpr int64_t kTokens = 900;
  constexpr int64_t kCounted = 700;
  constexpr double kLossTokens = 1000;
  const at::Tensor hidden = at::linspace(-2, 2, kTokens * 6, at::kDouble).sin().view({kTokens, 6});
  const at::Tensor weight = at::linspace(-30, 30, kVocab * 6, at::kDouble).cos().view({kVocab, 6});
  TokenBatch tokens;
  tokens.loss_positions = at::arange(kCounted) + 150;
  tokens.labels = (at::arange(kCounted) * 37) % kVocab;
  at::Tensor weight_gradient = at::ones_like(weight);

  const HeadLoss head = ComputeHeadLoss(hidden, weight, tokens, kLossTokens, weight_gradient);

  const at::Tensor rows = hidden.index_select(0, tokens.loss_positions);
  const at::Tensor log_probabilities = rows.matmul(weight.t()).log_softmax(1);
  const at::Tensor picked = log_probabilities.gather(1, tokens.labels.unsqueeze(1));
  EXPECT_NEAR(head.loss.item<double>(), -picked.sum().item<double>() / kLossTokens, 1e-12);
  const at::Tensor error = (log_probabilities.exp() - at::one_hot(tokens.labels, kVocab)) / kLossTokens;
  const at::Tensor expected =
      at::zeros_like(hidden).index_copy(0, tokens.loss_positions, error.matmul(weight));
  EXPECT_LT(LargestDifference(head.hidden_gradient, expected), 1e-14);
  EXPECT_LT(LargestDifference(weight_gradient, 1 + error.t().matmul(rows)), 1e-13);
}

TEST(LossHead, ChunksAreOf64MebibytesOrAsLargeAsTheHiddenStates) {
  EXPECT_EQ(PositionsPerChunk(/*positions=*/1000, /*hidden=*/64, /*vocab=*/32768), 512);
  EXPECT_EQ(PositionsPerChunk(16384, 4096, 32768), 2048) << "the matrix is read 8 times and not 32 times";
  EXPECT_EQ(PositionsPerChunk(2, 1, kLogitsPerChunk * 2), 1);
}

// The product of 20,000 rows of 1,024 is made in two blocks.
TEST(LossHead, AProductThatIsRoundedIsTheSameInBlocks) {
  constexpr int64_t kVocab = 20000;
  const at::Tensor hidden =
      at::linspace(-2, 2, 8 * 1024, at::kDouble).sin().view({8, 1024}).to(at::kBFloat16);
  const at::Tensor weight =
      at::linspace(-3, 3, kVocab * 1024, at::kDouble).cos().view({kVocab, 1024}).to(at::kBFloat16);
  TokenBatch tokens;
  tokens.loss_positions = at::arange(8);
  tokens.labels = at::arange(8) * 2499;
  at::Tensor weight_gradient = at::zeros({kVocab, 1024}, at::kFloat);
  ComputeHeadLoss(hidden, weight, tokens, 8, weight_gradient);
  const at::Tensor probabilities = at::linear(hidden, weight).to(at::kFloat).softmax(1);
  const at::Tensor error = (probabilities - at::one_hot(tokens.labels, kVocab)) / 8;
  const at::Tensor expected = error.t().mm(hidden.to(at::kFloat));
  EXPECT_LT(LargestDifference(weight_gradient, expected), 0.01 * expected.abs().max().item<double>());
}

// Logits of a thousand, whose exponentials only the largest of all ranks makes finite, in three chunks.
TEST(LossHead, TensorRanksHaveThePartsOfTheirTokens) {
  constexpr int64_t kVocab = 1000001;
  constexpr int64_t kCounted = 40;
  const at::Tensor hidden =
      at::linspace(-2, 2, kCounted * 3, at::kDouble).sin().view({kCounted, 3}).mul_(500);
  const at::Tensor weight = at::linspace(-30, 30, kVocab * 3, at::kDouble).cos().view({kVocab, 3});
  ASSERT_EQ(PositionsPerChunk(kCounted, 3, kVocab), 16);
  TokenBatch tokens;
  tokens.loss_positions = at::arange(kCounted);
  tokens.labels = (at::arange(kCounted) * 25641) % kVocab;
  at::Tensor weight_gradient = at::zeros_like(weight);
  const HeadLoss whole = ComputeHeadLoss(hidden, weight, tokens, 7, weight_gradient);
  RunStageGroup({.tensors = 2}, [&](ThreadStageGroup& group) {
    const VocabularyPart vocabulary = MakeVocabularyPart(kVocab, group);
    const auto own = [&](const at::Tensor& table) {
      return table.narrow(0, vocabulary.own.begin, vocabulary.own.size());
    };
    at::Tensor own_gradient = at::zeros_like(own(weight));
    HeadLoss head = ComputeHeadLoss(vocabulary, hidden, own(weight), tokens, 7, own_gradient);
    EXPECT_NEAR(head.loss.item<double>(), whole.loss.item<double>(), 1e-12 * whole.loss.item<double>());
    EXPECT_LT(LargestDifference(own_gradient, own(weight_gradient)), 1e-10);
    EXPECT_EQ(group.counts().maxima, 3);
    EXPECT_EQ(group.counts().sums, 3);
    group.SumOverTensorRanks(head.hidden_gradient);
    EXPECT_LT(LargestDifference(head.hidden_gradient, whole.hidden_gradient), 1e-12);
  });
}

// Positions of weight 0 are as if they were not asked for; several chunks, with a divided vocabulary and
// without.
TEST(LossHead, EachPositionCountsByItsWeight) {
  constexpr int64_t kVocab = 1000001;
  constexpr int64_t kCounted = 40;
  const at::Tensor hidden = at::linspace(-2, 2, kCounted * 3, at::kDouble).sin().view({kCounted, 3});
  const at::Tensor weight = at::linspace(-30, 30, kVocab * 3, at::kDouble).cos().view({kVocab, 3});
  TokenBatch tokens;
  tokens.loss_positions = at::arange(kCounted);
  tokens.labels = ((at::arange(kCounted) * 25641) % kVocab).to(at::kInt);
  tokens.loss_weights = (at::arange(kCounted) % 4).to(at::kFloat) / 2;
  tokens.loss_runs = {{.task = 1, .positions = 30}, {.task = 0, .positions = 10}};
  at::Tensor weight_gradient = at::zeros_like(weight);

  const HeadLoss head = ComputeHeadLoss(hidden, weight, tokens, 30, weight_gradient);

  const at::Tensor labels = tokens.labels.to(at::kLong);
  const at::Tensor log_probabilities = hidden.matmul(weight.t()).log_softmax(1);
  const at::Tensor losses = -log_probabilities.gather(1, labels.unsqueeze(1)).flatten() * tokens.loss_weights;
  EXPECT_NEAR(head.loss.item<double>(), losses.sum().item<double>() / 30, 1e-12);
  EXPECT_NEAR(head.run_losses[0].item<double>(), losses.narrow(0, 0, 30).sum().item<double>(), 1e-10);
  EXPECT_NEAR(head.run_losses[1].item<double>(), losses.narrow(0, 30, 10).sum().item<double>(), 1e-10);
  at::Tensor error = log_probabilities.exp();
  error.scatter_add_(1, labels.unsqueeze(1), at::full({kCounted, 1}, -1, at::kDouble));
  error *= tokens.loss_weights.to(at::kDouble).unsqueeze(1) / 30;
  EXPECT_LT(LargestDifference(head.hidden_gradient, error.matmul(weight)), 1e-12);
  EXPECT_LT(LargestDifference(weight_gradient, error.t().matmul(hidden)), 1e-12);
  RunStageGroup({.tensors = 2}, [&](ThreadStageGroup& group) {
    const VocabularyPart vocabulary = MakeVocabularyPart(kVocab, group);
    const at::Tensor own = weight.narrow(0, vocabulary.own.begin, vocabulary.own.size());
    at::Tensor own_gradient = at::zeros_like(own);
    HeadLoss divided = ComputeHeadLoss(vocabulary, hidden, own, tokens, 30, own_gradient);
    EXPECT_NEAR(divided.loss.item<double>(), head.loss.item<double>(), 1e-12);
    EXPECT_LT(LargestDifference(divided.run_losses, head.run_losses), 1e-10);
    group.SumOverTensorRanks(divided.hidden_gradient);
    EXPECT_LT(LargestDifference(divided.hidden_gradient, head.hidden_gradient), 1e-12);
  });
}

TEST(LossHead, WithoutCountedPositionsIsZero) {
  TokenBatch tokens;
  tokens.loss_positions = at::empty({0}, at::kLong);
  tokens.labels = at::empty({0}, at::kLong);
  const at::Tensor hidden = at::ones({2, 3, 4});
  at::Tensor weight_gradient = at::zeros({5, 4});
  const HeadLoss head = ComputeHeadLoss(hidden, at::ones({5, 4}), tokens, 7, weight_gradient);
  EXPECT_EQ(head.loss.item<double>(), 0);
  EXPECT_TRUE(head.hidden_gradient.equal(at::zeros({2, 3, 4})));
  EXPECT_TRUE(weight_gradient.equal(at::zeros({5, 4})));
}

}  // namespace
}  // namespace penstock::worker
