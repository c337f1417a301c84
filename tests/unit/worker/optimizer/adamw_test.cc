#include "worker/optimizer/adamw.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

namespace penstock::worker {
namespace {

TrainingConfig Config() {
  TrainingConfig config;
  config.learning_rate.peak = 0.1;
  config.beta1 = 0.9;
  config.beta2 = 0.99;
  config.epsilon = 1e-8;
  config.weight_decay = 0.5;
  return config;
}

NamedParameter Parameter(const std::string& name, const at::Tensor& value) {
  return {name, value, at::zeros_like(value, value.options().dtype(at::kDouble))};
}

std::unique_ptr<AdamW> Make(const TrainingConfig& config, const std::vector<NamedParameter>& parameters) {
  auto optimizer = AdamW::Create(config, parameters);
  EXPECT_TRUE(optimizer.ok()) << optimizer.status();
  return *std::move(optimizer);
}

// One element, in plain arithmetic.
struct PlainAdamW {
  double weight = 0;
  double first = 0;
  double second = 0;

  void Step(int step, double gradient, double decay) {
    first = 0.9 * first + 0.1 * gradient;
    second = 0.99 * second + 0.01 * gradient * gradient;
    const double mean = first / (1 - std::pow(0.9, step));
    const double variance = second / (1 - std::pow(0.99, step));
    weight -= 0.1 * (mean / (std::sqrt(variance) + 1e-8) + decay * weight);
  }
};

TEST(AdamW, StepsAsByHand) {
  NamedParameter matrix = Parameter("w", at::full({1, 1}, 2.0, at::kDouble));
  NamedParameter bias = Parameter("b", at::full({1}, 2.0, at::kDouble));
  const auto optimizer = Make(Config(), {matrix, bias});
  PlainAdamW plain_matrix{2, 0, 0};
  PlainAdamW plain_bias{2, 0, 0};
  const std::vector<double> gradients = {0.3, -1.5, 0.2, 4};
  for (int step = 1; step <= 4; ++step) {
    const double gradient = gradients[static_cast<size_t>(step - 1)];
    matrix.gradient.fill_(gradient);
    bias.gradient.fill_(gradient);
    ASSERT_TRUE(optimizer->Step(static_cast<uint64_t>(step - 1), /*gradient_scale=*/0.5).ok());
    plain_matrix.Step(step, 0.5 * gradient, 0.5);
    plain_bias.Step(step, 0.5 * gradient, 0);  // no decay for vectors
    EXPECT_NEAR(matrix.value.item<double>(), plain_matrix.weight, 1e-14);
    EXPECT_NEAR(bias.value.item<double>(), plain_bias.weight, 1e-14);
    EXPECT_EQ(bias.gradient.item<double>(), gradient) << "the gradient is left alone";
  }
}

TEST(AdamW, SumsTheSquaresOfAllGradientsInFloat64) {
  NamedParameter a = Parameter("a", at::zeros({2, 2}, at::kFloat));
  NamedParameter b = Parameter("b", at::zeros({3}, at::kFloat));
  a.gradient = at::full({2, 2}, 3, at::kFloat);
  b.gradient = at::full({3}, 1e-4, at::kFloat);
  const auto sum = Make(Config(), {a, b})->SumOfSquaredGradients();
  ASSERT_TRUE(sum.ok()) << sum.status();
  EXPECT_EQ(sum->scalar_type(), at::kDouble);
  EXPECT_NEAR((*sum)[0].item<double>(), 36 + 3e-8, 1e-12);
}

// Steps far below the resolution of bfloat16 near 1 add up in the float32 master.
TEST(AdamW, KeepsMastersOfBFloat16) {
  NamedParameter parameter{"w", at::ones({4}, at::kBFloat16), at::ones({4}, at::kFloat)};
  TrainingConfig config = Config();
  config.learning_rate.peak = 1e-4;
  const auto optimizer = Make(config, {parameter});
  ASSERT_TRUE(optimizer->Step(0, 1).ok());
  EXPECT_EQ(parameter.value[0].item<float>(), 1) << "too small a step to see";
  for (uint64_t i = 1; i < 200; ++i) ASSERT_TRUE(optimizer->Step(i, 1).ok());
  EXPECT_NEAR(parameter.value[0].item<float>(), 0.98, 0.005);
}

TEST(AdamW, GoesOnFromItsState) {
  const auto gradient = [](int step) { return std::sin(step + 1.0); };
  NamedParameter whole = Parameter("w", at::ones({2, 2}, at::kDouble));
  NamedParameter resumed = Parameter("w", at::ones({2, 2}, at::kDouble));
  const auto straight = Make(Config(), {whole});
  const auto resuming = Make(Config(), {resumed});
  for (int step = 0; step < 6; ++step) {
    if (step == 3) {
      std::map<std::string, at::Tensor> state;
      for (const NamedTensor& tensor : straight->State(true)) state[tensor.name] = tensor.value;
      for (const NamedTensor& tensor : resuming->State(true)) tensor.value.copy_(state.at(tensor.name));
      resumed.value.copy_(whole.value);
    }
    for (const auto& [parameter, optimizer] :
         {std::pair(whole, straight.get()), std::pair(resumed, resuming.get())}) {
      if (optimizer == resuming.get() && step < 3) continue;
      parameter.gradient.fill_(gradient(step));
      ASSERT_TRUE(optimizer->Step(static_cast<uint64_t>(step), 1).ok());
    }
  }
  EXPECT_TRUE(resumed.value.equal(whole.value));
}

TEST(AdamW, NamesItsStateOnce) {
  const NamedParameter narrow{"n", at::ones({1}, at::kBFloat16), at::zeros({1}, at::kFloat)};
  const auto optimizer = Make(Config(), {Parameter("w", at::ones({1}, at::kDouble)), narrow});
  std::set<std::string> names;
  for (const NamedTensor& tensor : optimizer->State(true)) names.insert(tensor.name);
  EXPECT_EQ(names.size(), optimizer->State(true).size());
  EXPECT_TRUE(names.contains("optimizer.master.n"));
  EXPECT_FALSE(names.contains("optimizer.master.w"));
}

}  // namespace
}  // namespace penstock::worker
