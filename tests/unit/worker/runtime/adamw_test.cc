#include "worker/optimizer/adamw.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

namespace penstock::worker {
namespace {

NamedParameter Parameter(const at::Tensor& value, const at::Tensor& gradient) {
  return {.name = "p", .value = value, .gradient = gradient};
}

TrainingConfig Config() {
  return {.learning_rate = {.peak = 0.1}, .beta1 = 0.9, .beta2 = 0.99, .epsilon = 0, .weight_decay = 0.5};
}

TEST(AdamW, FirstStepMovesByTheLearningRateAgainstTheGradient) {
  const at::Tensor value = at::zeros({3}, at::kDouble);
  auto optimizer = AdamW::Create(Config(), {Parameter(value, at::tensor({2.0, -5.0, 0.1}, at::kDouble))});
  ASSERT_TRUE((*optimizer)->Step(0, /*gradient_scale=*/1).ok());
  EXPECT_TRUE(at::allclose(value, at::tensor({-0.1, 0.1, -0.1}, at::kDouble)));
}

TEST(AdamW, DecaysMatricesAlone) {
  const at::Tensor matrix = at::ones({1, 2}, at::kDouble);
  const at::Tensor vector = at::ones({2}, at::kDouble);
  const at::Tensor gradient = at::ones({2}, at::kDouble);
  auto optimizer =
      AdamW::Create(Config(), {Parameter(matrix, gradient.view({1, 2})), Parameter(vector, gradient)});
  ASSERT_TRUE((*optimizer)->Step(0, 1).ok());
  EXPECT_NEAR(vector[0].item<double>(), 0.9, 1e-12);
  EXPECT_NEAR(matrix[0][0].item<double>(), 1 * (1 - 0.1 * 0.5) - 0.1, 1e-12);
}

TEST(AdamW, ScalesGradientsAndLeavesThemAlone) {
  TrainingConfig config = Config();
  config.epsilon = 1;
  const at::Tensor scaled = at::zeros({1}, at::kDouble);
  const at::Tensor plain = at::zeros({1}, at::kDouble);
  const at::Tensor gradient = at::full({1}, 8.0, at::kDouble);
  auto first = AdamW::Create(config, {Parameter(scaled, gradient)});
  auto second = AdamW::Create(config, {Parameter(plain, at::full({1}, 2.0, at::kDouble))});
  ASSERT_TRUE((*first)->Step(0, 0.25).ok());
  ASSERT_TRUE((*second)->Step(0, 1).ok());
  EXPECT_DOUBLE_EQ(scaled.item<double>(), plain.item<double>());
  EXPECT_EQ(gradient.item<double>(), 8.0);
}

TEST(AdamW, SumsSquaresInDoublePrecision) {
  const at::Tensor gradient = at::full({4}, 3.0, at::kFloat);
  auto optimizer =
      AdamW::Create(Config(), {Parameter(at::zeros({4}), gradient), Parameter(at::zeros({4}), gradient)});
  const absl::StatusOr<at::Tensor> sum = (*optimizer)->SumOfSquaredGradients();
  ASSERT_TRUE(sum.ok()) << sum.status();
  EXPECT_EQ(sum->scalar_type(), at::kDouble);
  EXPECT_EQ(sum->item<double>(), 72.0);
}

TEST(AdamW, KeepsSmallUpdatesOfBfloat16InTheMaster) {
  TrainingConfig config = Config();
  config.learning_rate.peak = 1e-4;  // far below half a unit in the last place of 1
  config.weight_decay = 0;
  const at::Tensor value = at::ones({1}, at::kBFloat16);
  auto optimizer = AdamW::Create(config, {Parameter(value, at::ones({1}, at::kFloat))});
  for (uint64_t i = 0; i < 100; ++i) ASSERT_TRUE((*optimizer)->Step(i, 1).ok());
  EXPECT_NEAR(value.item<float>(), 0.99, 0.004);
  EXPECT_EQ((*optimizer)->State().size(), 3u);
}

}  // namespace
}  // namespace penstock::worker
