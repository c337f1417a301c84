// Slow ranks of stage groups, named by what each rank says that it waited for the others inside of passes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/core/diagnose/cause_words.h"
#include "planner/core/diagnose/diagnose.h"
#include "planner/core/diagnose/group_passes.h"
#include "planner/core/timeline/timeline_of_iterations.h"
#include "tests/unit/core/group_jobs.h"
#include "tests/unit/core/job_builder.h"
#include "tests/unit/core/ran_iterations.h"

namespace penstock::core {
namespace {

constexpr uint32_t kNone = 1000;

v1::JobSpec JobOf(uint32_t pipeline, uint32_t data, uint32_t context, uint32_t tensor) {
  v1::JobSpec job = GptJob(pipeline, data, v1::POLICY_DYNAMIC);
  SetGroup(context, tensor, &job);
  return job;
}

// Rank `slow` computes `factor` times as long as the others, and its group waits for it.
Ran RanWith(const v1::JobSpec& job, uint32_t slow, double factor) {
  Ran ran(job, slow == kNone ? job.profile() : WithSlowRank(job.profile(), slow, factor), 4);
  ran.ReportExchanges([&](uint32_t rank) { return rank == slow ? factor : 1; });
  return ran;
}

Timeline TimelineOf(const Ran& ran, const v1::CostProfile* profile = nullptr) {
  std::vector<MeasuredIteration> measured;
  for (const ObservedIteration& one : ran.Observed())
    measured.push_back({.plan = one.plan, .reports = one.reports, .profile = profile});
  auto timeline = TimelineOfIterations(measured);
  EXPECT_TRUE(timeline.ok()) << timeline.status();
  return timeline.ok() ? *std::move(timeline) : Timeline();
}

std::vector<Cause> SlowRanksOf(const Timeline& timeline) {
  const auto diagnosis = Diagnose(timeline);
  EXPECT_TRUE(diagnosis.ok()) << diagnosis.status();
  std::vector<Cause> slow;
  if (!diagnosis.ok()) return slow;
  for (const Cause& cause : diagnosis->causes) {
    if (cause.kind == CauseKind::kSlowRank) slow.push_back(cause);
  }
  return slow;
}

TEST(DiagnosedGroupsTest, TheSlowRankIsNamedWithWhatMendingItBringsItsWholeGroup) {
  struct Mesh {
    uint32_t pipeline, data, context, tensor, slow;
  };
  for (const Mesh& mesh : {Mesh{1, 1, 1, 2, 1}, Mesh{2, 1, 1, 2, 0}, Mesh{2, 2, 1, 2, 3}, Mesh{1, 1, 4, 1, 2},
                           Mesh{2, 1, 2, 2, 5}}) {
    const v1::JobSpec job = JobOf(mesh.pipeline, mesh.data, mesh.context, mesh.tensor);
    const std::string name = absl::StrCat(mesh.pipeline, mesh.data, mesh.context, mesh.tensor);
    const Ran ran = RanWith(job, mesh.slow, 1.3);
    const std::vector<Cause> slow = SlowRanksOf(TimelineOf(ran));
    ASSERT_EQ(slow.size(), 1U) << name;
    EXPECT_EQ(slow[0].rank, static_cast<int32_t>(mesh.slow)) << name;
    EXPECT_NEAR(slow[0].factor, 1.3, 0.02) << name;
    // Its exchanges are as slow here as what it computes, and are not mended.
    const Ran healthy = RanWith(job, kNone, 1);
    double took = 0, would_take = 0;
    for (const ObservedIteration& one : ran.Observed()) took += MeasuredMakespanNs(one);
    for (const ObservedIteration& one : healthy.Observed()) would_take += MeasuredMakespanNs(one);
    EXPECT_GT(slow[0].gain, 0.5 * (1 - would_take / took)) << name;
    EXPECT_LT(slow[0].gain, 1.02 * (1 - would_take / took)) << name;
  }
}

TEST(DiagnosedGroupsTest, ItIsNamedAlsoWhereThePlanKnowsThatItsGroupIsSlow) {
  v1::JobSpec job = JobOf(2, 1, 1, 2);
  const v1::CostProfile usual = job.profile();
  *job.mutable_profile() = WithSlowRank(usual, 2, 1.5);
  Ran ran(job, job.profile(), 4);
  // What a plan with the slow rank says of computing has its factor.
  ran.ReportExchanges([](uint32_t rank) { return rank == 3 ? 1 / 1.5 : 1; });
  const Timeline timeline = TimelineOf(ran, &job.profile());
  const std::vector<Cause> slow = SlowRanksOf(timeline);
  ASSERT_EQ(slow.size(), 1U);
  EXPECT_EQ(slow[0].rank, 2);
  EXPECT_NEAR(slow[0].factor, 1.5, 0.1);
}

// Context ranks have rows of their own, and wait for the one that has most of them.
TEST(DiagnosedGroupsTest, OfHealthyGroupsNoneIsNamed) {
  for (const auto& [context, tensor] : {std::pair(1U, 2U), std::pair(2U, 1U), std::pair(4U, 2U)}) {
    for (const uint32_t data : {1U, 2U})
      EXPECT_TRUE(SlowRanksOf(TimelineOf(RanWith(JobOf(2, data, context, tensor), kNone, 1))).empty());
  }
}

TEST(DiagnosedGroupsTest, WithoutWhatRanksWaitedAllOfTheGroupAreSlow) {
  const v1::JobSpec job = JobOf(2, 2, 1, 2);
  const Ran ran(job, WithSlowRank(job.profile(), 1, 1.5), 4);
  std::vector<int32_t> ranks;
  for (const Cause& cause : SlowRanksOf(TimelineOf(ran))) ranks.push_back(cause.rank);
  std::ranges::sort(ranks);
  EXPECT_EQ(ranks, (std::vector<int32_t>{0, 1}));
}

// Of a rank whose passes compute for half as long as those of the slow one, half is waiting for it.
TEST(DiagnosedGroupsTest, WhatARankWaitsInsidePassesIsNotCountedAsComputing) {
  const Ran ran = RanWith(JobOf(1, 1, 1, 2), /*slow=*/1, 2);
  const auto diagnosis = Diagnose(TimelineOf(ran));
  ASSERT_TRUE(diagnosis.ok()) << diagnosis.status();
  const RankShares& waits = diagnosis->ranks[0].shares;
  const RankShares& slow = diagnosis->ranks[1].shares;
  EXPECT_NEAR(waits.computing(), slow.computing() / 2, 0.01);
  EXPECT_NEAR(waits.in_group, slow.in_group + slow.computing() / 2, 0.01);
  EXPECT_GT(slow.computing(), 0.5);
}

// Two ranks of a group in one pass of 100 ns.
class GroupPassesTest : public testing::Test {
 protected:
  static Timeline TimelineOfPasses(int64_t computed_0, int64_t computed_1, int64_t computed_2) {
    Timeline timeline;
    timeline.stages = 1;
    timeline.replicas = 3;
    timeline.names = {"forward-compute"};
    timeline.steps.emplace_back();
    const int64_t computed[] = {computed_0, computed_1, computed_2};
    for (int32_t rank = 0; rank < 3; ++rank) {
      timeline.places.push_back({.stage = 0, .replica = rank, .group_replica = 0});
      timeline.rank_numbers.push_back(rank);
      timeline.steps[0].operations.push_back({.rank = rank,
                                              .kind = OperationKind::kForward,
                                              .micro_batch = 0,
                                              .model_stage = 0,
                                              .duration_ns = 100,
                                              .expected_ns = 100,
                                              .computed_ns = computed[rank],
                                              .expected_computed_ns = 50});
    }
    return timeline;
  }
};

// Of 90 and 60 ns that are computed 30 are slack, whatever the slow one would save beyond.
TEST_F(GroupPassesTest, AGroupSavesNoMoreThanUntilItWaitsForAnother) {
  const Timeline timeline = TimelineOfPasses(90, 60, 50);
  const auto replays = StepReplays::Of(timeline);
  ASSERT_TRUE(replays.ok()) << replays.status();
  const GroupPasses groups(*replays);
  size_t passes = 0;
  replays->ForPasses([&](size_t step, size_t i, const Operation&) {
    ++passes;
    EXPECT_NEAR(groups.SavedNs(step, i, /*rank=*/0, /*factor=*/1.25), 18, 1e-9);
    EXPECT_NEAR(groups.SavedNs(step, i, /*rank=*/0, /*factor=*/9), 30, 1e-9);
    EXPECT_EQ(groups.SavedNs(step, i, /*rank=*/1, /*factor=*/2), 0) << "it waits itself";
  });
  EXPECT_EQ(passes, 3U);
}

TEST_F(GroupPassesTest, WhereNobodyWaitsARankSavesWhatIsItsOwn) {
  const Timeline timeline = TimelineOfPasses(100, 100, 100);
  const auto replays = StepReplays::Of(timeline);
  ASSERT_TRUE(replays.ok()) << replays.status();
  const GroupPasses groups(*replays);
  replays->ForPasses([&](size_t step, size_t i, const Operation& pass) {
    EXPECT_NEAR(groups.SavedNs(step, i, /*rank=*/1, /*factor=*/2), pass.rank == 1 ? 50 : 0, 1e-9);
  });
}

}  // namespace
}  // namespace penstock::core
