#include "planner/cli/up/run_curves.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "absl/strings/match.h"
#include "tests/support/temporary_folder.h"

namespace penstock::cli {
namespace {

constexpr absl::Time kTime = absl::FromUnixSeconds(1700000000);
constexpr const char* kEventFile = "tensorboard/events.out.tfevents.1700000000.penstock";

class RunCurvesTest : public ::testing::Test {
 protected:
  RunCurves Open(uint64_t first_iteration, bool trains = true) const {
    auto curves = RunCurves::Open(folder_.path(), first_iteration, trains, [] { return kTime; });
    EXPECT_TRUE(curves.ok()) << curves.status();
    return *std::move(curves);
  }

  // A second in which 100 tokens were learnt.
  static v1::IterationSummary Iteration(uint64_t number, double loss) {
    v1::IterationSummary iteration;
    iteration.set_iteration(number);
    iteration.set_loss(loss);
    iteration.set_loss_tokens(100);
    iteration.set_real_tokens(100);
    iteration.set_gradient_norm(1.5);
    v1::PartNorm* const part = iteration.add_part_norms();
    part->set_part(v1::MODEL_PART_ATTENTION);
    part->set_norm(1.25);
    iteration.set_learning_rate(0.25);
    iteration.set_measured_ns(1000000000);
    iteration.set_bubble(0.125);
    return iteration;
  }

  static std::string Events(uint64_t number, double loss) {
    return RecordOf(ScalarsEvent(kTime, number,
                                 {{"train/loss", loss},
                                  {"train/gradient_norm", 1.5},
                                  {"gradient_norm/attention", 1.25},
                                  {"train/learning_rate", 0.25},
                                  {"speed/tokens_per_second", 100},
                                  {"speed/iteration_ms", 1000},
                                  {"speed/bubble", 0.125}}));
  }

  const TemporaryFolder folder_;
};

TEST_F(RunCurvesTest, TensorboardForgetsWhatIsDoneAgain) {
  RunCurves curves = Open(3);
  for (const uint64_t number : {3, 4, 5}) ASSERT_TRUE(curves.Add(Iteration(number, 8), {}).ok());
  for (const uint64_t number : {4, 5}) ASSERT_TRUE(curves.Add(Iteration(number, 7), {}).ok());
  EXPECT_EQ(folder_.Read(kEventFile), RecordOf(VersionEvent(kTime)) + RecordOf(StartEvent(kTime, 3)) +
                                          Events(3, 8) + Events(4, 8) + Events(5, 8) +
                                          RecordOf(StartEvent(kTime, 4)) + Events(4, 7) + Events(5, 7));
}

TEST_F(RunCurvesTest, TasksAndValidationHaveCurvesOfTheirOwn) {
  RunCurves curves = Open(0);
  v1::IterationSummary nothing_learnt = Iteration(0, 0);
  nothing_learnt.set_loss_tokens(0);
  ASSERT_TRUE(curves.Add(nothing_learnt, {{.task = "flan", .samples = 3, .tokens = 30}}).ok());
  ASSERT_TRUE(
      curves.AddValidation({.next_iteration = 1, .loss = 2, .tasks = {{.task = "flan", .loss = 4}}}).ok());
  const std::string validation =
      RecordOf(ScalarsEvent(kTime, 0, {{"validation/loss", 2}, {"validation_task/flan", 4}}));
  EXPECT_TRUE(
      absl::EndsWith(folder_.Read(kEventFile), RecordOf(ScalarsEvent(kTime, 0,
                                                                     {{"train/learning_rate", 0.25},
                                                                      {"speed/tokens_per_second", 100},
                                                                      {"speed/iteration_ms", 1000},
                                                                      {"speed/bubble", 0.125},
                                                                      {"task_samples/flan", 3},
                                                                      {"task_tokens/flan", 30}})) +
                                                   validation));
}

TEST_F(RunCurvesTest, WhatTrainsNothingHasNoEvents) {
  ASSERT_TRUE(Open(0, /*trains=*/false).Add(Iteration(0, 1), {}).ok());
  EXPECT_FALSE(std::filesystem::exists(folder_.Path("tensorboard")));
  EXPECT_NE(folder_.Read("metrics.jsonl"), "");
}

}  // namespace
}  // namespace penstock::cli
