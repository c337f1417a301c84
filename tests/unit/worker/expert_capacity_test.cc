// Which rows experts take, where they take so many of a sample.
#include "worker/model/expert_capacity.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <optional>

#include "tests/unit/worker/model_testing.h"
#include "worker/model/routed_samples.h"

namespace penstock::worker {
namespace {

// Of the tokens of samples of 4 and of 2, packed, with 2 of 4 experts a token.
at::Tensor TakenOf(const at::Tensor& chosen, double capacity_factor) {
  ModelConfig config = SmallSharedExpertConfig(DataType::kFloat32);
  config.experts = 4;
  config.experts_per_token = 2;
  config.expert_capacity_factor = capacity_factor;
  const MicroBatch shape = MakeMicroBatch(config, {{0, 4}, {0, 2}}, Layout::kPacked);
  const std::optional<RoutedSamples> samples = MakeRoutedSamples(shape, config, at::kCPU, {});
  const TokenRows rows = {.tokens = 6, .samples = samples.has_value() ? &*samples : nullptr};
  return TakenRows(rows, chosen, config.experts);
}

at::Tensor Chosen(at::ArrayRef<int64_t> experts) { return at::tensor(experts, at::kLong).view({-1, 2}); }

TEST(ExpertCapacity, FirstChoicesComeBeforeSecondOnesAndEarlierTokensBeforeLaterOnes) {
  // Of 4 tokens an expert takes 2 rows, of 2 it takes 1.
  const at::Tensor taken = TakenOf(Chosen({0, 1, 1, 0, 2, 0, 0, 3, /*second sample*/ 0, 1, 1, 0}), 1);
  const at::Tensor expected =
      at::tensor(at::ArrayRef<int64_t>({1, 1, 1, 0, 1, 0, 1, 1, /*second sample*/ 1, 0, 1, 0}), at::kLong);
  EXPECT_TRUE(taken.to(at::kLong).reshape({-1}).equal(expected)) << taken;
}

TEST(ExpertCapacity, ASampleTakesNothingFromAnother) {
  // All of the first sample go to one expert, which still takes those of the second.
  const at::Tensor taken = TakenOf(Chosen({0, 1, 0, 1, 0, 1, 0, 1, /*second sample*/ 0, 1, 2, 3}), 0.5);
  EXPECT_EQ(taken.narrow(0, 0, 4).sum().item<int64_t>(), 2);
  EXPECT_TRUE(taken.narrow(0, 4, 2).all().item<bool>());
}

TEST(ExpertCapacity, WithRoomForEverythingNothingIsDropped) {
  const at::Tensor chosen = Chosen({0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1});
  EXPECT_TRUE(TakenOf(chosen, 2).all().item<bool>());
  EXPECT_TRUE(TakenOf(chosen, 1e300).all().item<bool>());
  EXPECT_FALSE(TakenOf(chosen, 1.5).all().item<bool>());
}

TEST(ExpertCapacity, WithoutAFactorNobodyCounts) {
  EXPECT_FALSE(TakenOf(Chosen({0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1}), 0).defined());
}

}  // namespace
}  // namespace penstock::worker
