#include "worker/profile/measure_optimizer.h"

#include <gtest/gtest.h>

#include "tests/unit/worker/profile/work_clock.h"

namespace penstock::worker {
namespace {

TEST(StepThrough, IsTheLineThroughTwoSteps) {
  const MeasuredStep step = StepThrough({.bytes = 1000, .ns = 700}, {.bytes = 5000, .ns = 2700});
  EXPECT_DOUBLE_EQ(step.parameter_byte_ns, 0.5);
  EXPECT_DOUBLE_EQ(step.fixed_ns, 200);
}

TEST(StepThrough, NeverBeginsBelowNothingAndNeverFalls) {
  for (const double small_ns : {100.0, 3000.0}) {
    const MeasuredStep step = StepThrough({.bytes = 1000, .ns = small_ns}, {.bytes = 5000, .ns = 2500});
    EXPECT_DOUBLE_EQ(step.parameter_byte_ns, 0.5) << small_ns;
    EXPECT_EQ(step.fixed_ns, 0) << small_ns;
  }
}

ModelConfig SmallGpt() {
  return {.layers = 3, .hidden = 64, .heads = 4, .ffn = 256, .vocab = 32, .max_sequence_length = 32};
}

MeasuredStep MeasureStep(int64_t stages) {
  const WorkClock work;
  const NanosecondClock clock = [&] { return work.Now(); };
  auto run = StageRun::Create(SmallGpt(), {0, 1, false, false}, {}, stages, at::kCPU, {clock, clock});
  EXPECT_TRUE(run.ok()) << run.status();
  const auto step = MeasureOptimizer(*run);
  EXPECT_TRUE(step.ok()) << step.status();
  return step.value_or(MeasuredStep());
}

// Gradients are squared and set to 0 by LibTorch; the update itself is a loop of our own, which the clock of
// work does not see.
TEST(MeasureOptimizer, TellsWhatGrowsWithTheParametersFromWhatDoesNot) {
  for (const int64_t stages : {3, 1}) {
    const MeasuredStep step = MeasureStep(stages);
    EXPECT_GT(step.parameter_byte_ns, 0.2) << stages;
    EXPECT_LT(step.parameter_byte_ns, 1) << stages;
    EXPECT_GE(step.fixed_ns, 0) << stages;
    EXPECT_LT(step.fixed_ns, 1000) << stages;
  }
  EXPECT_GT(MeasureStep(3).fixed_ns, 0) << "the norm of all gradients";
}

}  // namespace
}  // namespace penstock::worker
