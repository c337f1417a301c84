// Whatever lists of passes a search makes, for whatever placement of stages: timeline, programs, simulator
// and checker agree.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/core/schedule/pipeline_timeline.h"
#include "planner/core/simulate/simulator.h"
#include "tests/unit/core/job_builder.h"
#include "tests/unit/core/pipeline_case.h"

namespace penstock::core {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::JobSpec Gpt(uint32_t pipeline, uint32_t data = 1) { return GptJob(pipeline, data, v1::POLICY_DYNAMIC); }
v1::JobSpec T5(uint32_t pipeline, uint32_t data = 1) { return T5Job(pipeline, data, v1::POLICY_DYNAMIC); }

// FORWARD takes 10, BACKWARD 20 of which BACKWARD_WEIGHT 10, a transfer 1.
PipelineCosts UniformCosts(const std::vector<int32_t>& position_of_stage, int micro_batches) {
  PipelineCosts costs;
  costs.Resize(static_cast<int>(position_of_stage.size()), micro_batches);
  costs.position_of_stage = position_of_stage;
  costs.positions = 1 + *std::max_element(position_of_stage.begin(), position_of_stage.end());
  for (auto& time : costs.forward_ns) time = 10;
  for (auto& time : costs.backward_ns) time = 20;
  for (auto& time : costs.weight_ns) time = 10;
  for (auto& time : costs.transfer_ns) time = 1;
  return costs;
}

int64_t Makespan(const PipelineCosts& costs, const std::vector<std::string>& ranks) {
  PipelineTimeline timeline;
  const RankPasses passes = ParsePasses(ranks);
  EXPECT_TRUE(timeline.Run(costs, passes));
  return timeline.makespan_ns();
}

bool Runs(const PipelineCosts& costs, const std::vector<std::string>& ranks) {
  PipelineTimeline timeline;
  const RankPasses passes = ParsePasses(ranks);
  return timeline.Run(costs, passes);
}

TEST(PipelineTimelineTest, TheGradientLeavesBeforeTheWeightPass) {
  const PipelineCosts costs = UniformCosts({0, 1}, 1);
  // Forward passes and transfer 21, backward of stage 1 until 41, transfer, backward of stage 0.
  EXPECT_EQ(Makespan(costs, {"F0.0 B0.0", "F1.0 B1.0"}), 62);
  // The gradient is sent at 31; stage 1 ends at 41, stage 0 at 52.
  EXPECT_EQ(Makespan(costs, {"F0.0 I0.0 W0.0", "F1.0 I1.0 W1.0"}), 52);
}

TEST(PipelineTimelineTest, DelayedWeightPassesFillTheWait) {
  // Stage 0 waits for its second gradient, which leaves stage 1 at 61, or runs a weight pass.
  const PipelineCosts costs = UniformCosts({0, 1}, 2);
  const std::string last = "F1.0 I1.0 F1.1 I1.1 W1.0 W1.1";
  // 0: F 0-20; 1: F0 11-21, I0 21-31, F1 31-41, I1 41-51, W 51-71. 0: I0 32-42, W0 42-52, I1 52-62, W1 62-72.
  EXPECT_EQ(Makespan(costs, {"F0.0 F0.1 I0.0 W0.0 I0.1 W0.1", last}), 72);
  EXPECT_EQ(Makespan(costs, {"F0.0 F0.1 I0.0 I0.1 W0.0 W0.1", last}), 82);
}

TEST(PipelineTimelineTest, NothingIsSentBetweenStagesOfOneRank) {
  EXPECT_EQ(Makespan(UniformCosts({0, 0}, 1), {"F0.0 F1.0 B1.0 B0.0"}), 60);
  // A V: the turn costs no transfer, each of the four ways between the ranks takes 1.
  EXPECT_EQ(Makespan(UniformCosts({0, 1, 1, 0}, 1), {"F0.0 F3.0 B3.0 B0.0", "F1.0 F2.0 B2.0 B1.0"}), 124);
}

TEST(PipelineTimelineTest, ATransferWaitsForTheLinksOfBothItsEndsFirstComeFirstServed) {
  // A V over three ranks. Rank 1 sends the activations of stages 1 (to rank 2) and 4 (to rank 0) over one
  // link.
  PipelineCosts costs = UniformCosts({0, 1, 2, 2, 1, 0}, 3);
  for (auto& time : costs.transfer_ns) time = 0;
  costs.transfer_ns[costs.at(1, 1)] = 100;
  costs.transfer_ns[costs.at(0, 4)] = 50;
  PipelineTimeline timeline;
  const RankPasses passes = ParsePasses(
      {"F0.0 F0.1 F0.2 F5.0 F5.1 F5.2", "F1.0 F1.1 F4.0 F1.2 F4.1 F4.2", "F2.0 F3.0 F2.1 F3.1 F2.2 F3.2"});
  ASSERT_TRUE(timeline.Run(costs, passes));
  const auto start_of = [&](int stage, int micro_batch) {
    for (const PipelineEvent& event : timeline.events()) {
      const bool found = event.kind == EventKind::kTransferStart && event.stage == stage;
      if (found && event.micro_batch == micro_batch) return event.time_ns;
    }
    return int64_t{-1};
  };
  EXPECT_EQ(start_of(1, 1), 30);
  // FORWARD of stage 4 ends at 50, that of the last micro-batch on stage 1 at 60.
  EXPECT_EQ(start_of(4, 0), 130);
  EXPECT_EQ(start_of(1, 2), 180);
}

TEST(PipelineTimelineTest, ListsThatCannotRunAreRefusedAndTheRankIsNamed) {
  const PipelineCosts costs = UniformCosts({0, 1}, 2);
  PipelineTimeline timeline;
  const RankPasses circle = ParsePasses({"F0.0 B0.0 F0.1 B0.1", "F1.0 F1.1 B1.0 B1.1"});
  EXPECT_FALSE(timeline.Run(costs, circle));
  EXPECT_EQ(timeline.blocked_rank(), 0);
  EXPECT_EQ(timeline.blocked_pass().kind, PassKind::kBackward);
  EXPECT_EQ(timeline.blocked_pass().micro_batch, 0);
  // The same timeline runs again.
  const RankPasses sound = ParsePasses({"F0.0 F0.1 B0.0 B0.1", "F1.0 F1.1 B1.0 B1.1"});
  EXPECT_TRUE(timeline.Run(costs, sound));
}

TEST(PipelineTimelineTest, AListRunsNoPassTwiceOrOnAnotherRankOrBeforeWhatItNeeds) {
  const PipelineCosts costs = UniformCosts({0, 1}, 1);
  EXPECT_FALSE(Runs(costs, {"F0.0 F0.0 B0.0", "F1.0 B1.0"}));
  EXPECT_FALSE(Runs(costs, {"F0.0 B0.0 W0.0", "F1.0 B1.0"}));
  EXPECT_FALSE(Runs(costs, {"F0.0 I0.0 B0.0", "F1.0 B1.0"}));
  EXPECT_FALSE(Runs(costs, {"F0.0 F1.0 B0.0", "B1.0"}));
  EXPECT_FALSE(Runs(costs, {"F0.0 W0.0 I0.0", "F1.0 B1.0"}));
  EXPECT_FALSE(Runs(costs, {"F0.0 B0.0", "B1.0 F1.0"}));
}

TEST(BuildProgramsTest, PassesThatBlockEachOtherOrAreMissingAreNamed) {
  PipelineCase given(Gpt(2), {4, 4}, {0, 1}, 1, 1);
  given.SetPasses(0, {"F0.0 B0.0", "B1.0 F1.0"});
  const absl::Status blocked = BuildPrograms(given.costs(), given.replicas()).status();
  EXPECT_EQ(blocked.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(blocked.message()),
              HasSubstr("replica 0: the passes block each other: rank 0 stands at BACKWARD of micro-batch 0 "
                        "on stage 0"));
  given.SetPasses(0, {"F0.0 I0.0", "F1.0 B1.0"});
  const absl::Status missing = BuildPrograms(given.costs(), given.replicas()).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(missing.message()), HasSubstr("passes are missing"));
}

TEST(AnyScheduleTest, SplitBackwardOnTwoToFourStages) {
  PipelineCase two(Gpt(2), {4, 4}, {0, 1}, 3, 2);
  two.SetPasses(
      0, {"F0.0 F0.1 I0.0 F0.2 I0.1 W0.0 I0.2 W0.1 W0.2", "F1.0 I1.0 F1.1 I1.1 W1.0 F1.2 I1.2 W1.1 W1.2"});
  two.ExpectSound();
  PipelineCase three(Gpt(3), {3, 3, 2}, {0, 1, 2}, 2, 3);
  three.SetPasses(
      0, {"F0.0 F0.1 I0.0 I0.1 W0.1 W0.0", "F1.0 F1.1 I1.0 W1.0 I1.1 W1.1", "F2.0 B2.0 F2.1 I2.1 W2.1"});
  three.ExpectSound();
  PipelineCase four(Gpt(4), {2, 2, 2, 2}, {0, 1, 2, 3}, 2, 4);
  four.SetPasses(0, {"F0.0 F0.1 I0.0 W0.0 I0.1 W0.1", "F1.0 F1.1 I1.0 I1.1 W1.0 W1.1",
                     "F2.0 F2.1 I2.0 B2.1 W2.0", "F3.0 I3.0 F3.1 I3.1 W3.0 W3.1"});
  four.ExpectSound();
}

TEST(AnyScheduleTest, VOverTwoAndThreeRanks) {
  PipelineCase two(Gpt(2, 2), {2, 2, 2, 2}, {0, 1, 1, 0}, 2, 5);
  two.SetPasses(0, {"F0.0 F0.1 F3.0 B3.0 F3.1 B3.1 B0.0 B0.1", "F1.0 F2.0 F1.1 F2.1 B2.0 B1.0 B2.1 B1.1"});
  two.SetPasses(1, {"F0.0 F3.0 I3.0 F0.1 I0.0 F3.1 I3.1 I0.1 W3.0 W0.0 W3.1 W0.1",
                    "F1.0 F2.0 I2.0 I1.0 F1.1 F2.1 W2.0 I2.1 I1.1 W1.0 W2.1 W1.1"});
  two.ExpectSound();
  PipelineCase three(Gpt(3), {2, 1, 1, 1, 1, 2}, {0, 1, 2, 2, 1, 0}, 2, 6);
  three.SetPasses(0, {"F0.0 F0.1 F5.0 I5.0 F5.1 I5.1 W5.0 I0.0 W0.0 B0.1 W5.1",
                      "F1.0 F1.1 F4.0 F4.1 I4.0 B4.1 I1.0 W4.0 I1.1 W1.0 W1.1",
                      "F2.0 F3.0 F2.1 F3.1 B3.0 I2.0 B3.1 B2.1 W2.0"});
  three.ExpectSound();
}

TEST(AnyScheduleTest, StagesDealtInTurn) {
  PipelineCase given(Gpt(2, 2), {2, 2, 2, 2}, {0, 1, 0, 1}, 2, 7);
  for (int replica = 0; replica < 2; ++replica) {
    given.SetPasses(replica, {"F0.0 F0.1 F2.0 F2.1 B2.0 I2.1 B0.0 W2.1 B0.1",
                              "F1.0 F1.1 F3.0 B3.0 F3.1 B3.1 I1.0 I1.1 W1.0 W1.1"});
  }
  given.ExpectSound();
}

TEST(AnyScheduleTest, TwoStagesOnTheOnlyRank) {
  PipelineCase given(Gpt(1, 2), {4, 4}, {0, 0}, 2, 8);
  given.SetPasses(0, {"F0.0 F1.0 B1.0 B0.0 F0.1 F1.1 B1.1 B0.1"});
  given.SetPasses(1, {"F0.0 F0.1 F1.1 F1.0 I1.0 I0.0 I1.1 I0.1 W0.0 W1.0 W0.1 W1.1"});
  const v1::Plan plan = given.ExpectSound();
  EXPECT_THAT(plan.programs(0).stages(), ElementsAre(0, 1));
}

TEST(AnyScheduleTest, EncoderAndDecoderBoundaries) {
  // Boundaries after encoder layers, in the middle of neither, and after decoder layers.
  PipelineCase given(T5(2, 2), {2, 2, 3, 1}, {0, 1, 1, 0}, 2, 9);
  for (int replica = 0; replica < 2; ++replica) {
    given.SetPasses(replica, {"F0.0 F0.1 F3.0 I3.0 F3.1 I3.1 W3.0 I0.0 W0.0 I0.1 W0.1 W3.1",
                              "F1.0 F2.0 F1.1 F2.1 B2.0 B1.0 I2.1 I1.1 W2.1 W1.1"});
  }
  given.ExpectSound();
}

TEST(AnyScheduleTest, ThePlanSaysWhichStagesARankHasAndWhenTheLastPassEnds) {
  PipelineCase given(Gpt(2), {2, 2, 2, 2}, {0, 1, 1, 0}, 1, 10);
  given.SetPasses(0, {"F0.0 F3.0 B3.0 B0.0", "F1.0 F2.0 B2.0 B1.0"});
  const v1::Plan plan = given.ExpectSound();
  EXPECT_THAT(plan.programs(0).stages(), ElementsAre(0, 3));
  EXPECT_THAT(plan.programs(1).stages(), ElementsAre(1, 2));
  EXPECT_EQ(plan.schedule(), v1::SCHEDULE_INTERLEAVED);
  PipelineTimeline timeline;
  ASSERT_TRUE(timeline.Run(given.replicas()[0].costs, given.replicas()[0].passes));
  EXPECT_EQ(plan.predicted().last_backward_ns(), timeline.makespan_ns());
}

// Bytes of the rank above the static ones after the first instruction with this op, stage and micro-batch 0.
int64_t HeldAfter(const ProgramSet& programs, int rank, Op op, int stage) {
  int64_t bytes = 0;
  for (int32_t i = programs.rank_begin[rank]; i < programs.rank_begin[rank + 1]; ++i) {
    const Instruction& instruction = programs.instructions[i];
    bytes += instruction.acquired_bytes - instruction.released_bytes;
    if (instruction.op == op && instruction.stage == stage && instruction.micro_batch == 0) return bytes;
  }
  ADD_FAILURE() << "no such instruction";
  return 0;
}

TEST(AnyScheduleTest, WhatIsPutAsideStaysUntilTheWeightPass) {
  PipelineCase given(Gpt(1), {8}, {0}, 1, 11);
  given.replicas()[0].recompute[0] = {0, 8};
  given.SetPasses(0, {"F0.0 I0.0 W0.0"});
  const ProgramSet programs = given.Programs();
  const StageMemory& memory = given.replicas()[0].memory[0];
  EXPECT_EQ(HeldAfter(programs, 0, Op::kForward, 0),
            memory.tokens + given.costs().StoredBytes(0, memory, {0, 8}));
  EXPECT_EQ(HeldAfter(programs, 0, Op::kBackwardInput, 0),
            memory.tokens + given.costs().PutAsideBytes(0, memory));
  EXPECT_EQ(HeldAfter(programs, 0, Op::kBackwardWeight, 0), memory.tokens);
}

TEST(AnyScheduleTest, WhatPassesBetweenStagesOfOneRankIsCountedOnce) {
  PipelineCase given(Gpt(1), {4, 4}, {0, 0}, 1, 12);
  given.SetPasses(0, {"F0.0 F1.0 B1.0 B0.0"});
  const ProgramSet programs = given.Programs();
  const ReplicaPipeline& replica = given.replicas()[0];
  const int64_t tokens = replica.memory[0].tokens + replica.memory[1].tokens;
  const int64_t stored[] = {given.costs().StoredBytes(0, replica.memory[0], replica.recompute[0]),
                            given.costs().StoredBytes(1, replica.memory[1], replica.recompute[1])};
  const int64_t between = replica.memory[0].output;
  EXPECT_GT(between, 0);
  EXPECT_EQ(HeldAfter(programs, 0, Op::kForward, 1), tokens + stored[0] + stored[1] + between);
  EXPECT_EQ(HeldAfter(programs, 0, Op::kBackward, 1), tokens + stored[0] + between);
}

TEST(AnyScheduleTest, AllReplicasReduceInOneOrderAsSoonAsStagesAreDone) {
  // Stage 3 is done long before stage 0, which is on the same rank.
  PipelineCase given(Gpt(2, 2), {2, 2, 2, 2}, {0, 1, 1, 0}, 1, 13);
  for (int replica = 0; replica < 2; ++replica) {
    given.SetPasses(replica, {"F0.0 F3.0 B3.0 B0.0", "F1.0 F2.0 B2.0 B1.0"});
  }
  const ProgramSet programs = given.Programs();
  for (const int rank : {0, 2}) {
    std::vector<int> reduced;
    bool before_last_backward = false;
    for (int32_t i = programs.rank_begin[rank]; i < programs.rank_begin[rank + 1]; ++i) {
      const Instruction& instruction = programs.instructions[i];
      if (instruction.op == Op::kReduceGradients) reduced.push_back(instruction.stage);
      if (instruction.op == Op::kBackward && instruction.stage == 0)
        before_last_backward = reduced.size() == 1;
    }
    EXPECT_THAT(reduced, ElementsAre(3, 0));
    EXPECT_TRUE(before_last_backward);
  }
}

TEST(AnyScheduleTest, ReplicasWhoseStagesAreDoneInAnotherOrderDoNotWaitForEachOtherInACircle) {
  // Replica 0 is done with stage 3 first, and then exchanges gradients until it is done with stage 2; replica
  // 1 is done with stage 2 first, and then exchanges gradients until it is done with stage 3.
  PipelineCase given(Gpt(2, 2), {2, 2, 2, 2}, {0, 1, 1, 0}, 2, 14);
  for (ReplicaPipeline& replica : given.replicas()) {
    replica.costs = UniformCosts({0, 1, 1, 0}, 2);
    for (int m = 0; m < 2; ++m) replica.costs.backward_ns[replica.costs.at(m, 1)] = 1000;
  }
  given.SetPasses(
      0, {"F0.0 F0.1 F3.0 B3.0 F3.1 B3.1 B0.0 B0.1", "F1.0 F2.0 F1.1 F2.1 I2.0 B1.0 I2.1 W2.0 W2.1 B1.1"});
  given.SetPasses(
      1, {"F0.0 F0.1 F3.0 I3.0 F3.1 I3.1 B0.0 B0.1 W3.0 W3.1", "F1.0 F2.0 F1.1 F2.1 B2.0 B2.1 B1.0 B1.1"});
  given.ExpectSound();
}

// Layers of `stages` stages that add up to `total`.
std::vector<uint32_t> RandomLayers(int stages, uint32_t total, std::mt19937* random) {
  std::vector<uint32_t> layers(stages, 1);
  for (uint32_t left = total - static_cast<uint32_t>(stages); left > 0; --left) {
    ++layers[(*random)() % layers.size()];
  }
  return layers;
}

// Every rank has a stage.
std::vector<uint32_t> RandomPlacement(int stages, uint32_t ranks, std::mt19937* random) {
  std::vector<uint32_t> placement(stages);
  for (int stage = 0; stage < stages; ++stage) {
    placement[stage] = static_cast<uint32_t>(stage) < ranks ? stage : (*random)() % ranks;
  }
  for (size_t i = placement.size(); i > 1; --i) std::swap(placement[i - 1], placement[(*random)() % i]);
  return placement;
}

class RandomScheduleTest : public ::testing::TestWithParam<int> {};

TEST_P(RandomScheduleTest, IsSound) {
  constexpr int kCases = 40;
  for (int i = 0; i < kCases; ++i) {
    const auto seed = static_cast<uint32_t>(GetParam() * kCases + i);
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    const auto ranks = static_cast<uint32_t>(1 + random() % 4);
    const auto data = static_cast<uint32_t>(1 + random() % 3);
    const int stages = static_cast<int>(ranks + random() % (9 - ranks));
    v1::JobSpec job = random() % 2 == 0 ? Gpt(ranks, data) : T5(ranks, data);
    PipelineCase given(std::move(job), RandomLayers(stages, 8, &random),
                       RandomPlacement(stages, ranks, &random), 1 + static_cast<int>(random() % 5), seed);
    for (ReplicaPipeline& replica : given.replicas()) {
      replica.passes = RandomPasses(replica.costs, 50 * (random() % 3), &random);
    }
    given.ExpectSound();
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomScheduleTest, ::testing::Range(0, 10));

}  // namespace
}  // namespace penstock::core
