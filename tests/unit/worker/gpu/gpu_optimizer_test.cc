// AdamW on a GPU takes the steps that it takes on CPU.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/unit/worker/gpu/gpu_testing.h"
#include "worker/model/flat_parameters.h"
#include "worker/optimizer/adamw.h"

namespace penstock::worker {
namespace {

TrainingConfig OptimizerConfig() {
  TrainingConfig config;
  config.learning_rate.peak = config.learning_rate.minimum = 0.01;
  config.weight_decay = 0.1;
  return config;
}

// Matrices and vectors of sizes that fill no vector of a machine.
FlatParameters Parameters(at::ScalarType type, at::Device device) {
  const std::vector<ParameterSpec> specs = {{.name = "a", .shape = {5, 7}},
                                            {.name = "b", .shape = {3}},
                                            {.name = "c", .shape = {300, 211}},
                                            {.name = "d", .shape = {131}}};
  FlatParameters flat = MakeFlatParameters(specs, /*seed=*/1, type, device);
  for (const NamedParameter& parameter : flat.parameters) {
    const at::Tensor index = at::arange(parameter.value.numel(), at::kDouble) + parameter.offset;
    parameter.value.copy_(at::sin(index).view(parameter.value.sizes()));
  }
  return flat;
}

void SetGradients(const FlatParameters& flat, uint64_t step) {
  for (const NamedParameter& parameter : flat.parameters) {
    const at::Tensor index = at::arange(parameter.value.numel(), at::kDouble) + parameter.offset;
    parameter.gradient.copy_(at::cos(index * static_cast<double>(step + 1)).view(parameter.value.sizes()));
  }
}

double LargestDifference(const at::Tensor& left, const at::Tensor& right) {
  return (left.cpu().to(at::kDouble) - right.cpu().to(at::kDouble)).abs().max().item<double>();
}

class GpuAdamW : public testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override { PENSTOCK_NEEDS_GPUS(1); }
};

TEST_P(GpuAdamW, TakesTheStepsOfTheCpu) {
  const FlatParameters cpu = Parameters(GetParam(), at::kCPU);
  const FlatParameters gpu = Parameters(GetParam(), Gpu(0));
  auto on_cpu = AdamW::Create(OptimizerConfig(), {&cpu});
  auto on_gpu = AdamW::Create(OptimizerConfig(), {&gpu});
  ASSERT_TRUE(on_cpu.ok()) << on_cpu.status();
  ASSERT_TRUE(on_gpu.ok()) << on_gpu.status();
  for (uint64_t step = 0; step < 5; ++step) {
    SetGradients(cpu, step);
    SetGradients(gpu, step);
    const auto cpu_squares = (*on_cpu)->SumsOfSquares();
    const auto gpu_squares = (*on_gpu)->SumsOfSquares();
    ASSERT_TRUE(cpu_squares.ok() && gpu_squares.ok());
    EXPECT_NEAR(gpu_squares->sum().item<double>() / cpu_squares->sum().item<double>(), 1, 1e-5);
    ASSERT_TRUE((*on_cpu)->Step(step, /*gradient_scale=*/0.5).ok());
    ASSERT_TRUE((*on_gpu)->Step(step, /*gradient_scale=*/0.5).ok());
  }
  // A bfloat16 near 1 is rounded by up to 0.004: two steps that nearly agree may round to neighbours.
  const double tolerance = GetParam() == at::kBFloat16 ? 1.0 / 128 : 1e-6;
  EXPECT_LT(LargestDifference(gpu.values, cpu.values), tolerance);
  const std::vector<TensorPiece> cpu_state = (*on_cpu)->State(/*with_copies=*/true);
  const std::vector<TensorPiece> gpu_state = (*on_gpu)->State(/*with_copies=*/true);
  ASSERT_EQ(cpu_state.size(), gpu_state.size());
  for (size_t i = 0; i < cpu_state.size(); ++i)
    EXPECT_LT(LargestDifference(gpu_state[i].values, cpu_state[i].values), 1e-6) << cpu_state[i].slice.name;
}

INSTANTIATE_TEST_SUITE_P(Types, GpuAdamW, testing::Values(at::kFloat, at::kBFloat16, at::kDouble));

}  // namespace
}  // namespace penstock::worker
