#include "worker/runtime/shared_gradients.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "worker/model/transformer_stage.h"
#include "worker/optimizer/adamw.h"

namespace penstock::worker {
namespace {

using ::testing::ElementsAre;

ModelConfig T5() {
  ModelConfig config;
  config.layers = 4;
  config.encoder_layers = 2;
  config.architecture = Architecture::kT5;
  config.feed_forward = FeedForward::kRelu;
  config.hidden = 8;
  config.heads = 2;
  config.ffn = 16;
  config.vocab = 17;
  config.max_sequence_length = 8;
  config.dtype = DataType::kFloat64;
  return config;
}

// Stages of one layer each, with gradients of 1 in the first, 2 in the second, ...
class SharedGradientsTest : public ::testing::Test {
 protected:
  SharedGradientsTest() {
    for (uint32_t i = 0; i < 4; ++i) {
      owned_.push_back(*MakeTransformerStage(T5(), {i, 1, i == 0, i == 3}, /*seed=*/1, at::kCPU));
      for (const NamedParameter& parameter : owned_.back()->parameters()) parameter.gradient.fill_(i + 1);
    }
  }

  std::map<uint32_t, Stage*> Stages(const std::vector<uint32_t>& numbers) const {
    std::map<uint32_t, Stage*> stages;
    for (const uint32_t number : numbers) stages[number] = owned_[number].get();
    return stages;
  }

  static at::Tensor GradientOf(const Stage& stage, const std::string& name) {
    for (const NamedParameter& parameter : stage.parameters()) {
      if (parameter.name == name) return parameter.gradient;
    }
    return {};
  }

  std::vector<std::unique_ptr<Stage>> owned_;
};

TEST_F(SharedGradientsTest, AreSummedOverTheStagesOfTheRankAndZeroWhereThereAreNone) {
  const auto sums = GatherSharedGradients(T5(), Stages({0, 1, 3}), Sharding(), at::kCPU);
  ASSERT_TRUE(sums.ok()) << sums.status();
  ASSERT_EQ(sums->size(), 2U);
  EXPECT_TRUE((*sums)[0].equal(at::full({64}, 3, at::kDouble))) << "of the encoder: stages 0 and 1";
  EXPECT_TRUE((*sums)[1].equal(at::full({64}, 4, at::kDouble))) << "of the decoder: stage 3";
  EXPECT_TRUE(
      (*GatherSharedGradients(T5(), {}, Sharding(), at::kCPU))[0].equal(at::zeros({64}, at::kDouble)));
}

TEST_F(SharedGradientsTest, AreTheSameInEveryCopyAndCountOnce) {
  const std::vector<at::Tensor> sums = {at::full({64}, 5, at::kDouble), at::full({64}, 7, at::kDouble)};
  const auto squares = ScatterSharedGradients(T5(), Stages({0, 1, 2, 3}), Sharding(), sums, at::kCPU);
  ASSERT_TRUE(squares.ok()) << squares.status();
  EXPECT_TRUE(squares->equal(at::full({1}, 64 * (25 + 49), at::kDouble))) << *squares;
  for (const uint32_t stage : {0U, 1U}) {
    EXPECT_TRUE(GradientOf(*owned_[stage], "encoder.relative_bias.weight").view({-1}).equal(sums[0]));
  }
  for (const uint32_t stage : {2U, 3U}) {
    EXPECT_TRUE(GradientOf(*owned_[stage], "decoder.relative_bias.weight").view({-1}).equal(sums[1]));
  }
}

TEST_F(SharedGradientsTest, OfADividedStateAreThoseThatThisReplicaUpdates) {
  const Sharding sharding = {.count = 3, .own = 1, .divided = true};
  const auto sums = GatherSharedGradients(T5(), Stages({0, 1}), sharding, at::kCPU);
  ASSERT_TRUE(sums.ok()) << sums.status();
  EXPECT_TRUE((*sums)[0].equal(at::full({21}, 3, at::kDouble))) << "21, 21 and 22 of 64 elements";
  const std::vector<at::Tensor> summed = {at::full({21}, 5, at::kDouble), at::full({21}, 7, at::kDouble)};
  const auto squares = ScatterSharedGradients(T5(), Stages({0}), sharding, summed, at::kCPU);
  ASSERT_TRUE(squares.ok()) << squares.status();
  EXPECT_TRUE(squares->equal(at::tensor({0.0, 21.0 * (25 + 49), 0.0}, at::kDouble))) << *squares;
  const at::Tensor gradient = GradientOf(*owned_[0], "encoder.relative_bias.weight").view({-1});
  EXPECT_TRUE(gradient.narrow(0, 21, 21).equal(summed[0]));
  EXPECT_TRUE(gradient.narrow(0, 0, 21).equal(at::ones({21}, at::kDouble))) << "what others update is left";
  EXPECT_TRUE(gradient.narrow(0, 42, 22).equal(at::ones({22}, at::kDouble)));
}

TEST_F(SharedGradientsTest, AreLeftOutOfTheOptimizersOwnSum) {
  double expected = 0;
  for (const NamedParameter& parameter : owned_[1]->parameters()) {
    if (!parameter.shared) expected += 4.0 * static_cast<double>(parameter.value.numel());
  }
  const auto optimizer = *AdamW::Create(TrainingConfig(), {&owned_[1]->flat_parameters()});
  EXPECT_NEAR(optimizer->SumsOfSquares()->item<double>(), expected, 1e-9 * expected);
}

TEST_F(SharedGradientsTest, OfOneCopyAreInACheckpoint) {
  const auto optimizer =
      *AdamW::Create(TrainingConfig(), {&owned_[0]->flat_parameters(), &owned_[1]->flat_parameters()});
  const auto count = [&](bool with_copies) {
    int found = 0;
    for (const TensorPiece& piece : optimizer->State(with_copies)) {
      found += piece.slice.name == "optimizer.first_moment.encoder.relative_bias.weight" ? 1 : 0;
    }
    return found;
  };
  EXPECT_EQ(count(false), 1);
  EXPECT_EQ(count(true), 2);
}

}  // namespace
}  // namespace penstock::worker
