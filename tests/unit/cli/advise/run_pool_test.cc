// A pool for what a run trains on now, beside what it has.
#include "planner/cli/advise/run_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "common/mesh/mesh_ranks.h"
#include "planner/cli/advise/run_pool_report.h"
#include "planner/cli/strategy_list.h"
#include "tests/unit/core/job_builder.h"

namespace penstock::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const SwitchCommands kCommands = {.change = "penstock strategies --run-dir R",
                                  .resume = "penstock up --resume --run-dir R"};

// Short samples alone, on strategies that somebody has given it.
MeasuredRun RunOn(const char* strategies) {
  MeasuredRun run = {.job = core::GptJob(1, 1, v1::POLICY_DYNAMIC), .fitted = true};
  run.job.set_job_id("mix");
  run.job.mutable_planning()->set_parameter_shares(true);
  SetStrategies(*ReadStrategies(strategies), &run.job);
  run.batches = {core::MakeBatch({{0, 60}, {0, 50}, {0, 70}, {0, 60}, {0, 55}, {0, 65}, {0, 60}, {0, 58}}),
                 core::MakeBatch({{0, 61}, {0, 52}, {0, 73}, {0, 64}, {0, 55}, {0, 66}, {0, 60}, {0, 58}})};
  run.iterations = {{.iteration = 7, .planned_ns = 90'000'000, .measured_ns = 100'000'000}};
  return run;
}

RunPoolAdvice AdviceFor(const MeasuredRun& run) {
  TaskPool threads(1);
  const auto advice = AdviseRunPool(run, {}, /*strategies=*/2, &threads);
  EXPECT_TRUE(advice.ok()) << advice.status();
  return advice.value_or(RunPoolAdvice());
}

TEST(RunPoolTest, IsFasterThanStrategiesForOtherLengths) {
  const MeasuredRun run = RunOn("pp 4");
  const RunPoolAdvice advice = AdviceFor(run);
  EXPECT_LT(advice.pool_ms, 0.99 * advice.present_ms);
  for (const v1::Strategy& strategy : StrategiesOf(advice.pool)) EXPECT_EQ(RanksOf(strategy), 4U);
  EXPECT_THAT(RunPoolText(run, advice, kCommands),
              AllOf(HasSubstr("job mix on 4 ranks: pp 4 x dp 1\n"), HasSubstr("measured      100.0 ms"),
                    HasSubstr("To switch while it runs: penstock strategies --run-dir R --set '"),
                    HasSubstr("Or: penstock up --resume --run-dir R --strategies '")));
  const nlohmann::ordered_json json = RunPoolJson(run, advice, kCommands);
  EXPECT_THAT(json["command_while_it_runs"].get<std::string>(), HasSubstr("--set '"));
  EXPECT_GT(json["gain"], 0.01);
  EXPECT_THAT(json["command"].get<std::string>(), HasSubstr("--strategies"));
}

TEST(RunPoolTest, WhatIsProposedNeedsNoSwitch) {
  const RunPoolAdvice advice = AdviceFor(RunOn("pp 4"));
  const MeasuredRun run = RunOn(StrategyNames(StrategiesOf(advice.pool)).c_str());
  EXPECT_THAT(RunPoolText(run, AdviceFor(run), kCommands),
              AllOf(HasSubstr("have not drifted"), Not(HasSubstr("To switch"))));
}

TEST(RunPoolTest, IsThereForARunOnOneMesh) {
  MeasuredRun run = RunOn("cp 4");
  run.job.clear_strategies();
  run.job.mutable_planning()->set_parameter_shares(false);
  const RunPoolAdvice advice = AdviceFor(run);
  EXPECT_LT(advice.pool_ms, advice.present_ms);
  EXPECT_THAT(RunPoolText(run, advice, {}),
              AllOf(HasSubstr("on 4 ranks: pp 1 x dp 1 x cp 4"), HasSubstr("To switch: end the run")));
}

TEST(RunPoolTest, ABatchThatTheRunCannotPlanIsSaid) {
  MeasuredRun run = RunOn("dp 4");
  run.batches.front().mutable_samples(0)->set_target_tokens(1 << 30);
  TaskPool threads(1);
  EXPECT_FALSE(AdviseRunPool(run, {}, 2, &threads).ok());
}

}  // namespace
}  // namespace penstock::cli
