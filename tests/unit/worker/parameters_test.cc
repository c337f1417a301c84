#include "worker/model/parameters.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "tests/unit/worker/model_testing.h"

namespace penstock::worker {
namespace {

at::Tensor Initialise(const ParameterSpec& spec, uint64_t seed) {
  return InitialValue(spec, seed, at::kDouble, at::kCPU);
}

TEST(Parameters, DoNotDependOnTheSplit) {
  const ModelConfig config = SmallConfig(DataType::kFloat32);
  std::map<std::string, at::Tensor> whole;
  for (const ParameterSpec& spec : StageParameterSpecs(config, {0, 4, true, true})) {
    whole[spec.name] = Initialise(spec, 5);
  }
  size_t found = 0;
  for (const StageRange range :
       {StageRange{0, 1, true, false}, StageRange{1, 2, false, false}, StageRange{3, 1, false, true}}) {
    for (const ParameterSpec& spec : StageParameterSpecs(config, range)) {
      ASSERT_TRUE(whole.contains(spec.name)) << spec.name;
      EXPECT_TRUE(Initialise(spec, 5).equal(whole[spec.name])) << spec.name;
      ++found;
    }
  }
  EXPECT_EQ(found, whole.size());
}

TEST(Parameters, DependOnSeedAndName) {
  const ParameterSpec spec{
      .name = "head.weight", .shape = {8, 8}, .initial = Initial::kNormal, .standard_deviation = 1};
  ParameterSpec other = spec;
  other.name = "embedding.token.weight";
  EXPECT_FALSE(Initialise(spec, 1).equal(Initialise(spec, 2)));
  EXPECT_FALSE(Initialise(spec, 1).equal(Initialise(other, 1)));
}

TEST(Parameters, AreNormal) {
  const at::Tensor values = Initialise({"head.weight", {1000, 1000}, Initial::kNormal, 2}, 3);
  EXPECT_NEAR(values.mean().item<double>(), 0, 0.01);
  EXPECT_NEAR(values.std().item<double>(), 2, 0.01);
  // Shares beyond one and two deviations of the normal distribution.
  EXPECT_NEAR((values.abs() > 2).to(at::kDouble).mean().item<double>(), 0.3173, 0.005);
  EXPECT_NEAR((values.abs() > 4).to(at::kDouble).mean().item<double>(), 0.0455, 0.003);
  EXPECT_NEAR((values.slice(0, 1) * values.slice(0, 0, 999)).mean().item<double>(), 0, 0.02);
}

// Written down once: a change of the generator would change every training run.
TEST(Parameters, StayWhatTheyWere) {
  const at::Tensor values = Initialise({"layers.0.ffn.up.weight", {3}, Initial::kNormal, 1}, 42);
  EXPECT_EQ(values[0].item<double>(), -4065 / 65536.0);
  EXPECT_EQ(values[2].item<double>(), -13372 / 65536.0);
}

TEST(Parameters, ThatWriteToTheResidualStreamAreSmaller) {
  const ModelConfig config = SmallConfig(DataType::kFloat32);
  for (const ParameterSpec& spec : StageParameterSpecs(config, {0, 1, false, false})) {
    if (spec.name == "layers.0.ffn.down.weight" || spec.name == "layers.0.attention.output.weight") {
      EXPECT_DOUBLE_EQ(spec.standard_deviation, 0.02 / std::sqrt(8.0));
    } else if (spec.shape.size() == 2) {
      EXPECT_EQ(spec.standard_deviation, 0.02) << spec.name;
    } else {
      EXPECT_NE(spec.initial, Initial::kNormal) << spec.name;
    }
  }
}

}  // namespace
}  // namespace penstock::worker
