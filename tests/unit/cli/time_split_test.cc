#include "planner/cli/time_split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <utility>

#include "planner/core/planner.h"
#include "tests/unit/core/job_builder.h"
#include "tests/unit/core/random_job.h"

namespace penstock::cli {
namespace {

struct Planned {
  std::unique_ptr<core::Planner> planner;
  v1::Plan plan;
};

// Without a plan when the job has none.
Planned MakePlan(const v1::JobSpec& job, const v1::Batch& batch) {
  Planned planned;
  auto planner = core::Planner::Create(job);
  if (!planner.ok()) return planned;
  auto plan = (*planner)->MakePlan(batch);
  if (!plan.ok()) return planned;
  planned.planner = *std::move(planner);
  planned.plan = *std::move(plan);
  return planned;
}

// One rank and one micro-batch: a rectangle of 2 x 200 tokens, 100 of which are padding.
v1::JobSpec OneRectangle(v1::Recompute recompute) {
  v1::JobSpec job = core::GptJob(1, 1, v1::POLICY_PADDING);
  job.mutable_planning()->set_micro_batch_size(2);
  job.mutable_planning()->set_recompute(recompute);
  return job;
}

TEST(TimeSplit, TellsUsefulWorkFromPaddingAndOverhead) {
  const v1::Batch batch = core::MakeBatch({{0, 100}, {0, 200}});
  const Planned planned = MakePlan(OneRectangle(v1::RECOMPUTE_NONE), batch);
  ASSERT_NE(planned.planner, nullptr);
  const auto ranks = SplitTime(*planned.planner, batch, planned.plan);
  ASSERT_TRUE(ranks.ok()) << ranks.status();
  ASSERT_EQ(ranks->size(), 1u);
  const TimeSplit& split = ranks->front();
  // Forward and backward are three times the forward pass: 8 layers of 10 ns a token and 0.01 ns a squared
  // one, and the head's 5 ns a token.
  EXPECT_DOUBLE_EQ(split[kUseful], 3 * (8 * (10 * 300 + 0.01 * (100 * 100 + 200 * 200)) + 5 * 300));
  EXPECT_DOUBLE_EQ(split[kPadding], 3 * (8 * (10 * 100 + 0.01 * (200 * 200 - 100 * 100)) + 5 * 100));
  EXPECT_DOUBLE_EQ(split[kOverhead], 3 * (8 * 1000 + 500));
  EXPECT_DOUBLE_EQ(split[kRecompute], 0);
  EXPECT_DOUBLE_EQ(split[kUpdate], 0.5 * (8 * 1000 + 2000 + 2000));
}

TEST(TimeSplit, CountsWhatTokensTakeBeyondTheirBestEfficiencyAsOverhead) {
  const v1::Batch batch = core::MakeBatch({{0, 100}, {0, 200}});
  v1::JobSpec job = OneRectangle(v1::RECOMPUTE_NONE);
  core::SetEfficiency({{300, 1.2}, {400, 1.1}, {1000, 0.9}},
                      job.mutable_profile()->mutable_layers(0)->mutable_forward());
  const Planned planned = MakePlan(job, batch);
  ASSERT_NE(planned.planner, nullptr);
  const auto ranks = SplitTime(*planned.planner, batch, planned.plan);
  ASSERT_TRUE(ranks.ok()) << ranks.status();
  const TimeSplit& split = ranks->front();
  EXPECT_DOUBLE_EQ(split[kUseful], 3 * (8 * (0.9 * 10 * 300 + 0.01 * (100 * 100 + 200 * 200)) + 5 * 300));
  // 300 tokens without padding.
  EXPECT_NEAR(split[kOverhead], 3 * (8 * (1000 + 0.3 * 10 * 300) + 500), 1e-6);
}

TEST(TimeSplit, CountsWhatIsRunAgainAsRecompute) {
  const v1::Batch batch = core::MakeBatch({{0, 100}, {0, 200}});
  const Planned planned = MakePlan(OneRectangle(v1::RECOMPUTE_FULL), batch);
  ASSERT_NE(planned.planner, nullptr);
  const auto ranks = SplitTime(*planned.planner, batch, planned.plan);
  ASSERT_TRUE(ranks.ok()) << ranks.status();
  // One more forward pass of the layers, of the whole rectangle.
  EXPECT_NEAR(ranks->front()[kRecompute], 8 * (1000 + 10 * 400 + 0.01 * 2 * 200 * 200), 1e-6);
  EXPECT_NEAR(ranks->front()[kOverhead], 3 * (8 * 1000 + 500), 1e-6);
}

TEST(TimeSplit, AddsUpToTheMakespanOnEveryRankOfRandomJobs) {
  int plans = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    core::RandomPlanningCase given = core::MakeRandomCase(seed, {});
    given.job.mutable_planning()->set_effort(v1::EFFORT_FAST);
    const Planned planned = MakePlan(given.job, given.batch);
    if (planned.planner == nullptr) continue;
    ++plans;
    const auto ranks = SplitTime(*planned.planner, given.batch, planned.plan);
    ASSERT_TRUE(ranks.ok()) << given.Describe() << ranks.status();
    for (const TimeSplit& split : *ranks) {
      const auto makespan = static_cast<double>(planned.plan.predicted().makespan_ns());
      EXPECT_NEAR(std::accumulate(split.begin(), split.end(), 0.0), makespan, 1e-9 * makespan)
          << given.Describe();
      // A part is not below zero, but for the rounding of each instruction to a nanosecond.
      for (const double part : split) EXPECT_GE(part, -1000) << given.Describe();
    }
  }
  EXPECT_GT(plans, 30);
}

TEST(TimeSplit, APackedPlanHasNoPadding) {
  v1::JobSpec job = core::GptJob(2, 1, v1::POLICY_PACKED);
  job.mutable_planning()->set_recompute(v1::RECOMPUTE_NONE);
  const v1::Batch batch = core::MakeBatch({{0, 10}, {5, 200}, {40, 3}, {0, 77}});
  const Planned planned = MakePlan(job, batch);
  ASSERT_NE(planned.planner, nullptr);
  const auto ranks = SplitTime(*planned.planner, batch, planned.plan);
  ASSERT_TRUE(ranks.ok()) << ranks.status();
  const TimeSplit mean = MeanOf(*ranks);
  EXPECT_NEAR(mean[kPadding], 0, 1);
  EXPECT_GT(mean[kUseful], 0);
  EXPECT_GT(mean[kOverhead], 0);
}

// Layers whose parts of 1/2 take 1 / (2 x 0.8) of their time.
v1::JobSpec JobWithGroups(uint32_t pipeline, uint32_t context, v1::Policy policy) {
  v1::JobSpec job = core::GptJob(pipeline, 1, policy);
  job.mutable_mesh()->set_tensor(2);
  job.mutable_mesh()->set_context(context);
  for (v1::LayerCost& layer : *job.mutable_profile()->mutable_layers()) {
    layer.clear_tensor();
    v1::TensorCost& cost = *layer.add_tensor();
    cost.set_degree(2);
    cost.set_efficiency(0.8);
  }
  return job;
}

TEST(TimeSplit, TellsExchangeAndLossOfATensorGroupFromUsefulWork) {
  v1::JobSpec job = JobWithGroups(1, 1, v1::POLICY_PACKED);
  job.mutable_planning()->set_recompute(v1::RECOMPUTE_NONE);
  const v1::Batch batch = core::MakeBatch({{0, 100}, {0, 200}});
  const Planned planned = MakePlan(job, batch);
  ASSERT_NE(planned.planner, nullptr);
  const auto ranks = SplitTime(*planned.planner, batch, planned.plan);
  ASSERT_TRUE(ranks.ok()) << ranks.status();
  ASSERT_EQ(ranks->size(), 2u);
  const double useful = 3 * (8 * (10 * 300 + 0.01 * (100 * 100 + 200 * 200)) + 5 * 300) / 2;
  const double fixed = 3 * (8 * 1000 + 500) / 2.0;
  for (const TimeSplit& split : *ranks) {
    EXPECT_NEAR(split[kUseful], useful, 2);
    // What the lower efficiency costs is overhead, too.
    EXPECT_NEAR(split[kOverhead], fixed + (useful + fixed) * (1 / 0.8 - 1), 2);
    EXPECT_GT(split[kExchange], 0);
    EXPECT_NEAR(split[kPadding], 0, 1);
  }
}

TEST(TimeSplit, AddsUpToTheMakespanOnEveryRankOfStageGroups) {
  const v1::Batch batch = core::MakeBatch({{0, 10}, {5, 400}, {40, 3}, {0, 77}, {0, 31}});
  for (const v1::Policy policy :
       {v1::POLICY_PADDING, v1::POLICY_CONCATENATED, v1::POLICY_PACKED, v1::POLICY_DYNAMIC}) {
    for (const uint32_t pipeline : {1U, 2U}) {
      const Planned planned = MakePlan(JobWithGroups(pipeline, 4, policy), batch);
      ASSERT_NE(planned.planner, nullptr) << policy;
      const auto ranks = SplitTime(*planned.planner, batch, planned.plan);
      ASSERT_TRUE(ranks.ok()) << ranks.status();
      EXPECT_EQ(ranks->size(), 8 * pipeline);
      double group = 0;
      const auto makespan = static_cast<double>(planned.plan.predicted().makespan_ns());
      for (const TimeSplit& split : *ranks) {
        EXPECT_NEAR(std::accumulate(split.begin(), split.end(), 0.0), makespan, 1e-9 * makespan) << policy;
        for (const double part : split) EXPECT_GE(part, -1000) << policy;
        group += split[kGroup];
      }
      EXPECT_GT(group, 0) << policy;
    }
  }
}

TEST(TimeSplit, RefusesSpansThatAreNotOfTheRows) {
  const v1::Batch batch = core::MakeBatch({{0, 100}, {0, 200}});
  const Planned planned = MakePlan(JobWithGroups(1, 4, v1::POLICY_PACKED), batch);
  ASSERT_NE(planned.planner, nullptr);
  for (const auto& [first, ranks] :
       {std::pair(0U, 0U), std::pair(0U, 3U), std::pair(1U, 2U), std::pair(4U, 4U)}) {
    v1::Plan wrong = planned.plan;
    v1::MicroBatch& micro_batch = *wrong.mutable_replicas(0)->mutable_micro_batches(0);
    micro_batch.set_span_first(0, first);
    micro_batch.set_span_ranks(0, ranks);
    EXPECT_EQ(SplitTime(*planned.planner, batch, wrong).status().code(), absl::StatusCode::kInvalidArgument)
        << first << " " << ranks;
  }
}

TEST(TimeSplit, RefusesAPlanOfAnotherJobOrBatch) {
  const v1::Batch batch = core::MakeBatch({{0, 100}, {0, 200}, {0, 50}});
  const Planned planned = MakePlan(core::GptJob(2, 1, v1::POLICY_DYNAMIC), batch);
  ASSERT_NE(planned.planner, nullptr);
  EXPECT_EQ(SplitTime(*planned.planner, core::MakeBatch({{0, 100}}), planned.plan).status().code(),
            absl::StatusCode::kInvalidArgument);
  const auto other = core::Planner::Create(core::GptJob(4, 1, v1::POLICY_DYNAMIC));
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(SplitTime(**other, batch, planned.plan).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(TimeSplit, ThereIsNoMeanOfNothing) { EXPECT_EQ(MeanOf({}), TimeSplit{}); }

}  // namespace
}  // namespace penstock::cli
