#include "planner/cli/plan_summary.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace penstock::cli {
namespace {

// Two ranks of 100 ms: 60 and 80 ms busy.
v1::Plan SmallPlan() {
  v1::Plan plan;
  plan.set_lower_bound_ns(80'000'000);
  plan.set_schedule(v1::SCHEDULE_SPLIT_BACKWARD);
  plan.add_layers_per_stage(3);
  plan.add_layers_per_stage(5);
  v1::Prediction& predicted = *plan.mutable_predicted();
  predicted.set_makespan_ns(100'000'000);
  predicted.set_last_backward_ns(95'000'000);
  v1::RankPrediction& first = *predicted.add_ranks();
  first.set_busy_ns(60'000'000);
  first.mutable_bubble()->set_drain_ns(30'000'000);
  first.mutable_bubble()->set_memory_ns(10'000'000);
  v1::RankPrediction& second = *predicted.add_ranks();
  second.set_busy_ns(80'000'000);
  second.mutable_bubble()->set_fill_ns(20'000'000);
  return plan;
}

TEST(PlanSummary, DividesTheBubbleByCause) {
  const PlanSummary summary = Summarize("dynamic", v1::Batch(), SmallPlan());
  const nlohmann::ordered_json json = ToJson(summary);
  EXPECT_DOUBLE_EQ(json["bubble"], 0.3);
  EXPECT_DOUBLE_EQ(json["bubble_by_cause"]["fill"], 0.1);
  EXPECT_DOUBLE_EQ(json["bubble_by_cause"]["drain"], 0.15);
  EXPECT_DOUBLE_EQ(json["bubble_by_cause"]["memory"], 0.05);
  EXPECT_DOUBLE_EQ(json["bubble_by_cause"]["transfer"], 0);
}

TEST(PlanSummary, CountsWhatRanksWaitInsideTheirStageGroups) {
  v1::Plan plan = SmallPlan();
  plan.mutable_predicted()->mutable_ranks(1)->mutable_bubble()->set_fill_ns(12'000'000);
  plan.mutable_predicted()->mutable_ranks(1)->mutable_bubble()->set_group_ns(8'000'000);
  const PlanSummary summary = Summarize("dynamic", v1::Batch(), plan);
  EXPECT_DOUBLE_EQ(GroupWait(summary), 0.04);
  EXPECT_DOUBLE_EQ(ToJson(summary)["bubble_by_cause"]["group"], 0.04);
}

TEST(PlanSummary, CountsSamplesByTheContextRanksTheyAreDividedOver) {
  v1::Plan plan = SmallPlan();
  EXPECT_EQ(ToJson(Summarize("dynamic", v1::Batch(), plan))["spans"].dump(), "{}");
  v1::MicroBatch& micro_batch = *plan.add_replicas()->add_micro_batches();
  for (const uint32_t ranks : {1, 4, 1, 2, 1}) micro_batch.add_span_ranks(ranks);
  EXPECT_EQ(ToJson(Summarize("dynamic", v1::Batch(), plan))["spans"].dump(), R"({"1":3,"2":1,"4":1})");
}

TEST(PlanSummary, NamesScheduleAndStages) {
  const nlohmann::ordered_json json = ToJson(Summarize("dynamic", v1::Batch(), SmallPlan()));
  EXPECT_EQ(json["schedule"], "split-backward");
  EXPECT_EQ(json["layers_per_stage"], nlohmann::ordered_json::array({3, 5}));
  EXPECT_DOUBLE_EQ(json["last_backward_ms"], 95);
  EXPECT_DOUBLE_EQ(json["gap"], 0.25);
}

TEST(PlanSummary, AnInfeasibleRowHasNullForEveryPrediction) {
  const nlohmann::ordered_json json =
      ToJson(SummarizeInfeasible("padding", v1::Batch(), 3, absl::ResourceExhaustedError("too large")));
  for (const char* field : {"micro_batches", "makespan_ms", "last_backward_ms", "bubble_by_cause", "schedule",
                            "layers_per_stage", "peak_memory_mb"})
    EXPECT_TRUE(json[field].is_null()) << field;
  EXPECT_EQ(json["reason"], "too large");
}

}  // namespace
}  // namespace penstock::cli
