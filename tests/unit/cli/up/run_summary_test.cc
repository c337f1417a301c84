#include "planner/cli/up/run_summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace penstock::cli {
namespace {

using testing::HasSubstr;

v1::IterationSummary Iteration(uint64_t number, double loss, int64_t predicted_ms, int64_t measured_ms,
                               int64_t waited_ms) {
  v1::IterationSummary iteration;
  iteration.set_iteration(number);
  iteration.set_loss(loss);
  iteration.set_real_tokens(900);
  iteration.set_computed_tokens(1000);
  iteration.set_predicted_ns(predicted_ms * 1'000'000);
  iteration.set_measured_ns(measured_ms * 1'000'000);
  iteration.set_waited_for_program_ns(waited_ms * 1'000'000);
  iteration.set_bubble(0.25);
  iteration.set_planned_ahead(15);
  return iteration;
}

TEST(RunSummaryTest, MeansLeaveOutTheFirstIteration) {
  const RunSummary summary =
      Summarize({Iteration(0, 9, 100, 1000, 50), Iteration(1, 8, 100, 200, 0), Iteration(2, 7, 150, 100, 3)});
  EXPECT_EQ(summary.iterations, 3);
  EXPECT_DOUBLE_EQ(summary.first_loss, 9);
  EXPECT_DOUBLE_EQ(summary.last_loss, 7);
  EXPECT_DOUBLE_EQ(summary.measured_iteration_ms, 150);
  EXPECT_DOUBLE_EQ(summary.planned_iteration_ms, 125);
  EXPECT_DOUBLE_EQ(summary.prediction_error, 0.5);
  EXPECT_DOUBLE_EQ(summary.waited_for_plan_ms, 3);
  EXPECT_DOUBLE_EQ(summary.tokens_per_second, 1800 / 0.3);
  EXPECT_DOUBLE_EQ(summary.padding_efficiency, 0.9);
}

TEST(RunSummaryTest, ASingleIterationCounts) {
  EXPECT_DOUBLE_EQ(Summarize({Iteration(0, 9, 100, 1000, 50)}).measured_iteration_ms, 1000);
}

TEST(RunSummaryTest, NoIterationGivesZeros) { EXPECT_EQ(Summarize({}).iterations, 0); }

TEST(RunSummaryTest, ProgressLineShowsWhatTheRunDoes) {
  const std::string line = ProgressLine(Iteration(12, 4.2126, 100, 90, 0), 150);
  EXPECT_THAT(line, HasSubstr("iteration 12/150"));
  EXPECT_THAT(line, HasSubstr("loss 4.213"));
  EXPECT_THAT(line, HasSubstr("10,000 tokens/s"));
  EXPECT_THAT(line, HasSubstr("padding efficiency 90 %"));
  EXPECT_THAT(line, HasSubstr("bubble 25 %"));
  EXPECT_THAT(line, HasSubstr("planned ahead 15"));
}

TEST(RunSummaryTest, ASimulatedRunShowsTimesAndNoLoss) {
  const v1::IterationSummary iteration = Iteration(3, 0, 100, 90, 0);
  const std::string line = ProgressLine(iteration, 9, RunKind::kSimulated);
  EXPECT_THAT(line, HasSubstr("iteration 3/9  90.0 ms, planned 100.0 ms  10,000 tokens/s"));
  RunSummary summary = Summarize({iteration});
  summary.kind = RunKind::kSimulated;
  EXPECT_THAT(SummaryTable(summary, {}),
              testing::AllOf(HasSubstr("simulated"), testing::Not(HasSubstr("loss"))));
  const auto json = nlohmann::json::parse(SummaryJson(summary, {}));
  EXPECT_EQ(json["device"], "simulated");
  EXPECT_TRUE(json["last_loss"].is_null());
}

TEST(RunSummaryTest, SaysWhichGpusTrained) {
  RunSummary summary = Summarize({Iteration(0, 9, 100, 1000, 50)});
  EXPECT_THAT(SummaryTable(summary, {}), testing::Not(HasSubstr("device")));
  EXPECT_EQ(nlohmann::json::parse(SummaryJson(summary, {}))["device"], "cpu");
  summary.device = "cuda:0..3";
  EXPECT_THAT(SummaryTable(summary, {}), HasSubstr("cuda:0..3"));
  EXPECT_EQ(nlohmann::json::parse(SummaryJson(summary, {}))["device"], "cuda:0..3");
}

TEST(RunSummaryTest, OfAMixtureEachTaskHasItsShares) {
  RunSummary summary = Summarize({Iteration(0, 9, 100, 1000, 50)});
  EXPECT_EQ(SummaryJson(summary, {}).find("tasks"), std::string::npos);
  summary.tasks = {{.task = "flan", .samples = 30, .tokens = 1000, .loss_tokens = 600},
                   {.task = "code", .samples = 10, .tokens = 3000, .loss_tokens = 2990}};
  EXPECT_THAT(SummaryTable(summary, {}),
              HasSubstr("75.0 % of the samples, 25.0 % of the tokens: 30 samples, 1,000 tokens, 600 learnt"));
  EXPECT_THAT(SummaryJson(summary, {}),
              HasSubstr(R"("tasks":{"flan":{"samples":30,"tokens":1000,"loss_tokens":600},"code")"));
}

TEST(RunSummaryTest, MemoryIsThatOfTheRankThatTakesMost) {
  v1::GetIterationResponse measured;
  measured.mutable_plan()->mutable_predicted()->add_ranks()->set_peak_memory_bytes(3'000'000);
  measured.mutable_plan()->mutable_predicted()->add_ranks()->set_peak_memory_bytes(2'000'000);
  RunSummary summary;
  AddPeaks(measured, summary);
  EXPECT_THAT(SummaryTable(summary, {}), testing::Not(HasSubstr("memory"))) << "nobody has measured it";
  measured.add_reports()->set_peak_memory_bytes(1'000'000);
  measured.add_reports()->set_peak_memory_bytes(4'000'000);
  AddPeaks(measured, summary);
  EXPECT_THAT(SummaryTable(summary, {}), HasSubstr("3 MB / 4 MB"));
  EXPECT_EQ(nlohmann::json::parse(SummaryJson(summary, {}))["measured_peak_bytes"], 4'000'000);
}

TEST(RunSummaryTest, JsonHoldsTheFiguresOfTheTable) {
  const RunSummary summary = Summarize({Iteration(0, 9, 100, 1000, 50), Iteration(1, 8, 100, 200, 0)});
  const auto json =
      nlohmann::json::parse(SummaryJson(summary, {.run_dir = "runs/a", .checkpoint = "", .trace = "t.json"}));
  EXPECT_DOUBLE_EQ(json["measured_iteration_ms"].get<double>(), 200);
  EXPECT_EQ(json["trace"], "t.json");
  const std::string table = SummaryTable(summary, {.run_dir = "runs/a", .checkpoint = "", .trace = "t.json"});
  EXPECT_THAT(table, HasSubstr("t.json"));
  EXPECT_THAT(table, HasSubstr("100.0 ms / 200.0 ms"));
}

}  // namespace
}  // namespace penstock::cli
