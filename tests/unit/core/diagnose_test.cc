// Faults that are planted in simulated steps of planned batches of very different lengths: each is found and
// named.
#include "planner/core/diagnose/diagnose.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include "common/process/sanitized.h"
#include "planner/core/diagnose/replay_graph.h"
#include "tests/unit/core/simulated_timeline.h"

namespace penstock::core {
namespace {

TEST(ReplayGraphTest, FinishesWithTheLongestPathAndNamesIt) {
  ReplayGraph graph;
  const int32_t begin = graph.Add({}, -1);
  const int32_t one = graph.Add({begin}, 0);
  const int32_t other = graph.Add({begin}, 1);
  graph.Add({one, other}, 2);
  ASSERT_TRUE(graph.Order().ok());
  EXPECT_EQ(graph.Finish({5, 7, 3}), 10);
  EXPECT_EQ(graph.CriticalPath({5, 7, 3}), (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(graph.Finish({9, 7, 3}), 12);
  graph.WaitFor(one, 3);
  EXPECT_FALSE(graph.Order().ok());
}

TEST(DiagnoseTest, AReplayTakesAsLongAsTheStep) {
  for (uint64_t seed = 0; seed < 5; ++seed)
    EXPECT_LT(DiagnosisOf(SimulatedRun(4, 2, seed, Unchanged)).replay_error, 0.02);
}

TEST(DiagnoseTest, HealthyRunsNameNoRankAndNoLink) {
  for (uint64_t seed = 0; seed < (kSanitized ? 6 : 20); ++seed) {
    const Diagnosis diagnosis =
        DiagnosisOf(SimulatedRun(2 + seed % 3, 1 + seed % 4, seed, Unchanged, seed % 2 == 0));
    for (const Cause& cause : diagnosis.causes) {
      // Plans recompute more on the first stages, which a trace cannot tell from more layers.
      if (seed % 2 == 1 && cause.kind == CauseKind::kStageSplit) continue;
      EXPECT_EQ(cause.kind, CauseKind::kUnequalWork)
          << static_cast<int>(cause.kind) << " of rank " << cause.rank << ", stage " << cause.stage
          << ", factor " << cause.factor << " +- " << cause.uncertainty << ", gains " << cause.gain
          << ", seed " << seed;
    }
  }
}

// Lengths differ from micro-batch to micro-batch by more than a slow rank does.
TEST(DiagnoseTest, ASlowRankAtARandomPlaceIsNamed) {
  constexpr int kRuns = kSanitized ? 20 : 200;
  std::mt19937_64 random(11);
  int named = 0;
  double worst = 0;
  for (int i = 0; i < kRuns; ++i) {
    const int stages = 1 + static_cast<int>(random() % 4), replicas = 2 + static_cast<int>(random() % 3);
    const int slow = static_cast<int>(random() % (stages * replicas));
    const double factor = 1.1 + 0.9 * static_cast<double>(random() % 1000) / 1000;
    const SimulatedRun run(stages, replicas, random(), SlowRankFault(slow, factor), /*known_work=*/true);
    const Diagnosis diagnosis = DiagnosisOf(run);
    const bool is_named = diagnosis.causes.size() > 0 && diagnosis.causes[0].kind == CauseKind::kSlowRank &&
                          diagnosis.causes[0].rank == slow;
    named += is_named;
    if (is_named) worst = std::max(worst, std::abs(diagnosis.causes[0].factor / factor - 1));
  }
  EXPECT_GE(named, kRuns * 99 / 100);
  EXPECT_LT(worst, 0.05);
}

// Nobody says how long the samples are: the other stages tell, which compute the same micro-batches.
TEST(DiagnoseTest, ASlowRankIsToldFromLongSamplesByTheOtherStages) {
  constexpr int kRuns = kSanitized ? 10 : 60;
  std::mt19937_64 random(12);
  int named = 0;
  for (int i = 0; i < kRuns; ++i) {
    const int stages = 2 + static_cast<int>(random() % 3), replicas = 3 + static_cast<int>(random() % 2);
    const int slow = static_cast<int>(random() % (stages * replicas));
    const SimulatedRun run(stages, replicas, random(), SlowRankFault(slow, 1.3));
    const Diagnosis diagnosis = DiagnosisOf(run);
    const Cause* const cause = Find(diagnosis, CauseKind::kSlowRank);
    named += cause != nullptr && cause->rank == slow;
  }
  EXPECT_GE(named, kRuns * 99 / 100);
}

// What mending a cause is said to bring is what it brings.
TEST(DiagnoseTest, GainsAreWhatMendingBrings) {
  for (const double factor : {1.3, 2.0}) {
    const Diagnosis slow = DiagnosisOf(SimulatedRun(4, 2, 5, SlowRankFault(3, factor), true));
    const Diagnosis mended = DiagnosisOf(SimulatedRun(4, 2, 5, Unchanged, true));
    const Cause* const cause = Find(slow, CauseKind::kSlowRank);
    ASSERT_NE(cause, nullptr);
    const double brings = 1 - mended.measured_ns / slow.measured_ns;
    EXPECT_NEAR(cause->gain, brings, 0.25 * brings);
  }
}

TEST(DiagnoseTest, ASlowLinkIsNamed) {
  const SimulatedRun run(4, 2, 6, [](int rank, const Instruction& instruction, double duration) {
    // From rank 1 to rank 2, both ends and directions.
    const bool link = (rank == 1 && instruction.stream == Stream::kNext) ||
                      (rank == 2 && instruction.stream == Stream::kPrevious);
    return link ? duration * 50 : duration;
  });
  const Diagnosis diagnosis = DiagnosisOf(run);
  ASSERT_FALSE(diagnosis.causes.empty());
  EXPECT_EQ(diagnosis.causes[0].kind, CauseKind::kSlowLink);
  EXPECT_EQ(std::minmax(diagnosis.causes[0].rank, diagnosis.causes[0].peer), std::minmax(1, 2));
  EXPECT_TRUE(diagnosis.causes[0].both_ways);
}

TEST(DiagnoseTest, ALinkThatIsSlowOneWayIsNamedSo) {
  const SimulatedRun run(4, 2, 6, [](int rank, const Instruction& instruction, double duration) {
    const bool gradient = instruction.part == kGradientPart;
    const bool link = (rank == 1 && instruction.stream == Stream::kNext) ||
                      (rank == 2 && instruction.stream == Stream::kPrevious);
    return link && !gradient ? duration * 50 : duration;
  });
  const Diagnosis diagnosis = DiagnosisOf(run);
  const Cause* const cause = Find(diagnosis, CauseKind::kSlowLink);
  ASSERT_NE(cause, nullptr);
  EXPECT_FALSE(cause->both_ways);
}

TEST(DiagnoseTest, ASlowRingIsNamed) {
  const auto slow_ring = [](int rank, const Instruction& instruction, double duration) {
    (void)rank;
    const bool ring = instruction.op == Op::kReduceGradients && instruction.stage == 2;
    return ring ? duration * 50 : duration;
  };
  const Diagnosis slow = DiagnosisOf(SimulatedRun(4, 2, 6, slow_ring));
  ASSERT_FALSE(slow.causes.empty());
  EXPECT_EQ(slow.causes[0].kind, CauseKind::kSlowRing);
  EXPECT_EQ(slow.causes[0].ring, (std::vector<int32_t>{2, 6}));
  const double brings = 1 - DiagnosisOf(SimulatedRun(4, 2, 6, Unchanged)).measured_ns / slow.measured_ns;
  EXPECT_NEAR(slow.causes[0].gain, brings, 0.25 * brings);
}

TEST(DiagnoseTest, AStageWithMoreWorkIsNamed) {
  const SimulatedRun run(4, 3, 7, [](int rank, const Instruction& instruction, double duration) {
    (void)rank;
    return IsPass(instruction.op) && instruction.stage == 3 ? duration * 2 : duration;
  });
  const Diagnosis diagnosis = DiagnosisOf(run);
  const Cause* const cause = Find(diagnosis, CauseKind::kStageSplit);
  ASSERT_NE(cause, nullptr);
  EXPECT_EQ(cause->stage, 3);
  EXPECT_EQ(Find(diagnosis, CauseKind::kSlowRank), nullptr);
}

TEST(DiagnoseTest, PassesThatStallAreNamed) {
  std::mt19937_64 random(3);
  const SimulatedRun run(
      3, 2, 8,
      [&](int rank, const Instruction& instruction, double duration) {
        return rank == 4 && IsPass(instruction.op) && random() % 8 == 0 ? duration * 6 : duration;
      },
      /*known_work=*/true);
  const Diagnosis diagnosis = DiagnosisOf(run);
  ASSERT_FALSE(diagnosis.causes.empty());
  EXPECT_EQ(diagnosis.causes[0].kind, CauseKind::kStalledPasses);
  EXPECT_EQ(diagnosis.causes[0].rank, 4);
}

TEST(DiagnoseTest, AHostThatStallsIsNamed) {
  std::mt19937_64 random(4);
  const SimulatedRun run(3, 2, 9, Unchanged, /*known_work=*/true,
                         [&](int rank, const Instruction& instruction) {
                           return rank == 2 && IsPass(instruction.op) && random() % 4 == 0 ? 10'000 : 0;
                         });
  const Diagnosis diagnosis = DiagnosisOf(run);
  ASSERT_FALSE(diagnosis.causes.empty());
  EXPECT_EQ(diagnosis.causes[0].kind, CauseKind::kHostStalls);
  EXPECT_EQ(diagnosis.causes[0].rank, 2);
}

TEST(DiagnoseTest, ARankThatBeginsLateIsNamed) {
  const SimulatedRun run(
      2, 3, 10, Unchanged, /*known_work=*/true, [](int rank, const Instruction& instruction) {
        return rank == 4 && instruction.op == Op::kLoad && instruction.micro_batch == 0 ? 20'000 : 0;
      });
  const Diagnosis diagnosis = DiagnosisOf(run);
  ASSERT_FALSE(diagnosis.causes.empty());
  EXPECT_EQ(diagnosis.causes[0].kind, CauseKind::kLateStart);
  EXPECT_EQ(diagnosis.causes[0].rank, 4);
}

TEST(DiagnoseTest, ATimelineWithoutStepsIsRefused) { EXPECT_FALSE(Diagnose(Timeline()).ok()); }

}  // namespace
}  // namespace penstock::core
