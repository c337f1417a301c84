#include "planner/core/calibrate/training_factor.h"

#include <gtest/gtest.h>

#include "tests/unit/core/job_builder.h"

namespace penstock::core {
namespace {

TEST(TrainingFactor, ComputingTakesSoManyTimesWhatItTakesAlone) {
  v1::CostProfile alone = GptJob(2, 1, v1::POLICY_DYNAMIC).profile();
  alone.set_version(7);
  alone.set_optimizer_fixed_ns(800);
  alone.set_waiting_share(0.125);
  const v1::CostProfile trained = WithTrainingFactor(alone, Architecture::kGpt, 1.5);
  EXPECT_EQ(trained.training_factor(), 1.5);
  EXPECT_EQ(trained.layers(0).forward().target_token_ns(), 1.5 * alone.layers(0).forward().target_token_ns());
  EXPECT_EQ(trained.optimizer_ns_per_parameter_byte(), 1.5 * alone.optimizer_ns_per_parameter_byte());
  EXPECT_EQ(trained.optimizer_fixed_ns(), 1200);
  EXPECT_EQ(trained.cluster().SerializeAsString(), alone.cluster().SerializeAsString());
  EXPECT_EQ(trained.version(), 7);
  EXPECT_EQ(trained.waiting_share(), 0.125);
}

TEST(TrainingFactor, IsOfTheProfileThatWasMeasuredAlone) {
  const v1::CostProfile alone = GptJob(2, 1, v1::POLICY_DYNAMIC).profile();
  const v1::CostProfile once = WithTrainingFactor(alone, Architecture::kGpt, 1.5);
  EXPECT_EQ(WithTrainingFactor(once, Architecture::kGpt, 0.5).training_factor(), 0.75);
}

}  // namespace
}  // namespace penstock::core
