// Causes that need more than times to be told: what was foreseen, layers, cores, batches.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "planner/core/diagnose/diagnose.h"
#include "planner/core/diagnose/stage_balance.h"
#include "tests/unit/core/simulated_timeline.h"

namespace penstock::core {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Ranks that are called do their passes in so much of a core.
void ShareCores(const std::vector<int32_t>& ranks, double core_share, Timeline& timeline) {
  for (TimelineStep& step : timeline.steps) {
    for (Operation& operation : step.operations) {
      const bool shares = std::ranges::find(ranks, operation.rank) != ranks.end();
      if (IsPassKind(operation.kind) && shares) operation.core_share = core_share;
    }
  }
}

// In each step ranks have waited for their batch before all else, until the first of them begins.
void WaitForBatches(int64_t wait_ns, Timeline& timeline) {
  timeline.names.emplace_back("batch-wait");
  for (TimelineStep& step : timeline.steps) {
    const size_t operations = step.operations.size();
    const auto first = std::ranges::min_element(step.operations, {}, &Operation::start_ns)->start_ns;
    for (int32_t rank = 0; rank < static_cast<int32_t>(timeline.places.size()); ++rank) {
      step.operations.push_back({.rank = rank,
                                 .kind = OperationKind::kBatchWait,
                                 .name = static_cast<int32_t>(timeline.names.size()) - 1,
                                 .start_ns = first - wait_ns,
                                 .duration_ns = wait_ns});
    }
    ASSERT_GT(operations, 0u);
  }
}

TEST(DiagnosedCausesTest, WaitingForBatchesIsNamedWithAllThatItCosts) {
  SimulatedRun run(3, 2, 20, Unchanged, /*known_work=*/true);
  const double without = DiagnosisOf(run).measured_ns;
  const auto wait_ns = static_cast<int64_t>(0.3 * without);
  WaitForBatches(wait_ns, run.timeline());
  const Diagnosis diagnosis = DiagnosisOf(run);
  ASSERT_FALSE(diagnosis.causes.empty());
  EXPECT_EQ(diagnosis.causes[0].kind, CauseKind::kLateBatches);
  const double brings = 1 - without / diagnosis.measured_ns;
  EXPECT_NEAR(diagnosis.causes[0].gain, brings, 0.05 * brings);
  EXPECT_NEAR(diagnosis.ranks[0].shares.batch_wait, brings, 0.05 * brings);
}

// What others take of a rank's core is not the rank's own slowness.
TEST(DiagnosedCausesTest, ARankThatSharesItsCoreIsToldFromASlowOne) {
  SimulatedRun run(3, 2, 21, SlowRankFault(4, 1 / 0.6), /*known_work=*/true);
  ShareCores({4}, 0.6, run.timeline());
  const Diagnosis diagnosis = DiagnosisOf(run);
  ASSERT_FALSE(diagnosis.causes.empty());
  EXPECT_EQ(diagnosis.causes[0].kind, CauseKind::kSharedCores);
  EXPECT_THAT(diagnosis.causes[0].ring, ElementsAre(4));
  EXPECT_NEAR(diagnosis.causes[0].factor, 1 / 0.6, 0.01);
  EXPECT_EQ(Find(diagnosis, CauseKind::kSlowRank), nullptr);
  const double mended = DiagnosisOf(SimulatedRun(3, 2, 21, Unchanged, true)).measured_ns;
  const double brings = 1 - mended / diagnosis.measured_ns;
  EXPECT_NEAR(diagnosis.causes[0].gain, brings, 0.25 * brings);
}

TEST(DiagnosedCausesTest, RanksThatAllShareCoresAreOneCause) {
  SimulatedRun run(2, 2, 22, [](int, const Instruction& instruction, double duration) {
    return IsPass(instruction.op) ? 2 * duration : duration;
  });
  ShareCores({0, 1, 2, 3}, 0.5, run.timeline());
  const Diagnosis diagnosis = DiagnosisOf(run);
  const Cause* const cause = Find(diagnosis, CauseKind::kSharedCores);
  ASSERT_NE(cause, nullptr);
  EXPECT_THAT(cause->ring, ElementsAre(0, 1, 2, 3));
  EXPECT_GT(cause->gain, 0.4);
}

// Ranks that take turns on a core compute faster than beside each other, which is what their costs say.
TEST(DiagnosedCausesTest, RanksWithCoresOfTheirOwnAreAsFastAsTheirCostsSay) {
  SimulatedRun run(
      2, 2, 22,
      [](int, const Instruction& instruction, double duration) {
        return IsPass(instruction.op) ? 2 * duration : duration;
      },
      /*known_work=*/true);
  ShareCores({0, 1, 2, 3}, 0.35, run.timeline());
  const Diagnosis diagnosis = DiagnosisOf(run);
  const Cause* const cause = Find(diagnosis, CauseKind::kSharedCores);
  ASSERT_NE(cause, nullptr);
  const double mended = DiagnosisOf(SimulatedRun(2, 2, 22, Unchanged, true)).measured_ns;
  const double brings = 1 - mended / diagnosis.measured_ns;
  EXPECT_NEAR(cause->gain, brings, 0.05 * brings);
}

TEST(DiagnosedCausesTest, AWrongProfileOfAStageIsNoSlowRank) {
  for (const double factor : {2.0, 0.5}) {
    const SimulatedRun run(
        3, 2, 23,
        [&](int, const Instruction& instruction, double duration) {
          return IsPass(instruction.op) && instruction.stage == 1 ? duration * factor : duration;
        },
        /*known_work=*/true);
    const Diagnosis diagnosis = DiagnosisOf(run);
    EXPECT_EQ(Find(diagnosis, CauseKind::kSlowRank), nullptr);
    const Cause* const cause = Find(diagnosis, CauseKind::kWrongCosts);
    ASSERT_NE(cause, nullptr);
    EXPECT_THAT(cause->subject, HasSubstr("stage 1"));
    EXPECT_NEAR(cause->factor, factor, 0.1 * factor);
  }
}

TEST(DiagnosedCausesTest, CostsThatAreWrongForAllPassesAreNamed) {
  const SimulatedRun run(
      2, 1, 24,
      [](int, const Instruction& instruction, double duration) {
        return IsPass(instruction.op) ? 2 * duration : duration;
      },
      /*known_work=*/true);
  const Diagnosis diagnosis = DiagnosisOf(run);
  ASSERT_EQ(diagnosis.causes.size(), 1u);
  EXPECT_EQ(diagnosis.causes[0].kind, CauseKind::kWrongCosts);
  EXPECT_EQ(diagnosis.causes[0].gain, 0);
}

TEST(DiagnosedCausesTest, WrongCostsComeWhereTheirGainPutsThem) {
  Diagnosis diagnosis;
  diagnosis.causes = {{.kind = CauseKind::kHostStalls, .gain = 0.1}, {.kind = CauseKind::kWrongCosts}};
  SetGainOfRightCosts(0.2, diagnosis);
  EXPECT_EQ(diagnosis.causes[0].kind, CauseKind::kWrongCosts);
  EXPECT_EQ(diagnosis.causes[0].gain, 0.2);
}

// Whole layers are what can be moved.
TEST(DiagnosedCausesTest, ABadSplitOfLayersIsNamedWithWhatMovingThemBrings) {
  const auto scaled = [](int, const Instruction& instruction, double duration) {
    return IsPass(instruction.op) && instruction.stage == 0 ? 40 * duration : duration;
  };
  SimulatedRun run(4, 2, 25, scaled, /*known_work=*/true);
  // As foreseen: stages of 80, 2, 2 and 2 layers.
  for (TimelineStep& step : run.timeline().steps) {
    for (Operation& operation : step.operations) {
      if (IsPassKind(operation.kind) && operation.model_stage == 0) operation.expected_ns *= 40;
    }
  }
  run.timeline().layers_of_stage = {80, 2, 2, 2};
  const Diagnosis diagnosis = DiagnosisOf(run);
  ASSERT_FALSE(diagnosis.causes.empty());
  EXPECT_EQ(diagnosis.causes[0].kind, CauseKind::kStageSplit);
  EXPECT_EQ(diagnosis.causes[0].stage, 0);
  EXPECT_GT(diagnosis.causes[0].gain, 0.2);
}

TEST(DiagnosedCausesTest, ASplitThatNoLayerCouldBetterIsNoCause) {
  SimulatedRun run(2, 2, 26, Unchanged, /*known_work=*/true);
  run.timeline().layers_of_stage = {2, 2};
  EXPECT_EQ(Find(DiagnosisOf(run), CauseKind::kStageSplit), nullptr);
}

TEST(StageBalanceTest, LayersGoWhereLeastIsToDo) {
  EXPECT_THAT(BestStageFactors({6.0, 2.0}, {6, 2}),
              ElementsAre(DoubleNear(4.0 / 6, 1e-12), DoubleNear(2, 1e-12)));
}

TEST(StageBalanceTest, WhatAHeadTakesStaysWhereItIs) {
  // Four layers of 1 each; the last stage has a head of 3 beside its two.
  EXPECT_THAT(BestStageFactors({2.0, 5.0}, {2, 2}),
              ElementsAre(DoubleNear(3.0 / 2, 1e-12), DoubleNear(4.0 / 5, 1e-12)));
}

TEST(StageBalanceTest, NothingIsBetterThanEqualStages) {
  EXPECT_THAT(BestStageFactors({4.0, 4.0, 4.0}, {4, 4, 4}), ElementsAre(1, 1, 1));
}

TEST(RankTimesTest, SharesOfARankAddUpToTheStep) {
  const Diagnosis diagnosis = DiagnosisOf(SimulatedRun(3, 2, 27, Unchanged, /*known_work=*/true));
  ASSERT_EQ(diagnosis.ranks.size(), 6u);
  for (const MeasuredRankTime& rank : diagnosis.ranks) {
    const RankShares& shares = rank.shares;
    EXPECT_NEAR(shares.computing() + shares.other + shares.exchange + shares.batch_wait + shares.host +
                    shares.waiting,
                1, 0.02);
    EXPECT_GT(shares.forward, 0);
    EXPECT_GT(shares.computing(), 0.3);
    EXPECT_LT(rank.computing_uncertainty, 0.2);
  }
}

TEST(RankTimesTest, WhoWaitsForASlowRankHasLittleToCompute) {
  const Diagnosis diagnosis = DiagnosisOf(SimulatedRun(2, 2, 28, SlowRankFault(1, 3), /*known_work=*/true));
  EXPECT_GT(diagnosis.ranks[1].shares.computing(), 0.7);
  EXPECT_GT(diagnosis.ranks[0].shares.waiting, 0.3);
}

TEST(CriticalPathTest, ItsPartsFollowEachOtherThroughTheWholeStep) {
  const Diagnosis diagnosis = DiagnosisOf(SimulatedRun(3, 2, 29, Unchanged, /*known_work=*/true));
  const CriticalPath& path = diagnosis.critical_path;
  ASSERT_FALSE(path.parts.empty());
  int64_t now_ns = 0;
  for (const CriticalPart& part : path.parts) {
    EXPECT_EQ(part.start_ns, now_ns);
    now_ns += part.duration_ns;
  }
  EXPECT_NEAR(static_cast<double>(now_ns), static_cast<double>(path.measured_ns),
              0.02 * static_cast<double>(path.measured_ns));
}

TEST(CriticalPathTest, ASlowRankIsOnItForMostOfTheTime) {
  const Diagnosis diagnosis = DiagnosisOf(SimulatedRun(2, 2, 30, SlowRankFault(2, 4), /*known_work=*/true));
  int64_t slow_ns = 0;
  for (const CriticalPart& part : diagnosis.critical_path.parts)
    slow_ns += part.rank == 2 ? part.duration_ns : 0;
  EXPECT_GT(static_cast<double>(slow_ns), 0.8 * static_cast<double>(diagnosis.critical_path.measured_ns));
}

}  // namespace
}  // namespace penstock::core
