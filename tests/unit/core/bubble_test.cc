// Why ranks wait, on timelines computed by hand.
#include "planner/core/simulate/bubble.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "planner/core/simulate/simulator.h"
#include "tests/unit/core/job_builder.h"
#include "tests/unit/core/pipeline_case.h"

namespace penstock::core {
namespace {

constexpr int64_t kPlenty = std::numeric_limits<int64_t>::max() / 2;
// What a micro-batch stores on stage 1, the only one where it stores anything.
constexpr int64_t kStoredBytes = 100;

// Three stages, two micro-batches; FORWARD takes 10, BACKWARD 20, a transfer 1, but the second FORWARD of
// stage 0 takes 30. Rank 1, whose second input comes at 41, waits from 21 for the gradient, which leaves
// rank 2 at 52 and is there at 53.
class BubbleTest : public ::testing::Test {
 protected:
  BubbleTest() : given_(GptJob(3, 1, v1::POLICY_DYNAMIC), {6, 1, 1}, {0, 1, 2}, 2, 1) {
    ReplicaPipeline& replica = given_.replicas()[0];
    for (auto& time : replica.costs.forward_ns) time = 10;
    for (auto& time : replica.costs.backward_ns) time = 20;
    for (auto& time : replica.costs.weight_ns) time = 10;
    for (auto& time : replica.costs.transfer_ns) time = 1;
    replica.costs.forward_ns[replica.costs.at(1, 0)] = 30;
    for (auto& memory : replica.memory) memory = StageMemory();
    for (auto& recompute : replica.recompute) recompute = StageRecompute();
    for (int m = 0; m < 2; ++m) {
      replica.memory[replica.costs.at(m, 1)].stored_layer[1][kKeepAll] = kStoredBytes;
    }
  }

  RankTime TimeOfRank1(int64_t room) {
    const ProgramSet programs = given_.Programs();
    Simulator simulator;
    EXPECT_TRUE(simulator.Run(programs).ok());
    const int64_t limit = room == kPlenty ? kPlenty : programs.static_bytes[1] + room;
    return ExplainTime(programs, simulator, given_.topology(), {.common = limit})[1];
  }

  PipelineCase given_;
};

TEST_F(BubbleTest, AForwardThatDoesNotFitIsWaitedForFromWhenItsInputIsThere) {
  given_.SetPasses(0, {"F0.0 F0.1 B0.0 B0.1", "F1.0 B1.0 F1.1 B1.1", "F2.0 B2.0 F2.1 B2.1"});
  const RankTime without = TimeOfRank1(kPlenty);
  EXPECT_EQ(without.memory_ns, 0);
  EXPECT_EQ(without.fill_ns, 11);
  // 21 to 52 and, for the second micro-batch, 83 to 114.
  EXPECT_EQ(without.dependency_ns, 31 + 31);
  const RankTime with = TimeOfRank1(2 * kStoredBytes - 1);
  // 41 to 53.
  EXPECT_EQ(with.memory_ns, 12);
  EXPECT_EQ(with.dependency_ns, 20 + 31);
  EXPECT_EQ(with.transfer_ns, without.transfer_ns - 1);
  EXPECT_EQ(with.busy_ns, without.busy_ns);
}

TEST_F(BubbleTest, AForwardThatFitsIsNotWaitedForWhateverTheOrder) {
  given_.SetPasses(0, {"F0.0 F0.1 B0.0 B0.1", "F1.0 B1.0 F1.1 B1.1", "F2.0 B2.0 F2.1 B2.1"});
  EXPECT_EQ(TimeOfRank1(2 * kStoredBytes).memory_ns, 0);
}

TEST_F(BubbleTest, WhatIsPutAsideHoldsUpAForwardToo) {
  // The bytes of the first micro-batch are there until its weight pass, which runs last.
  given_.SetPasses(0, {"F0.0 F0.1 B0.0 B0.1", "F1.0 I1.0 F1.1 I1.1 W1.0 W1.1", "F2.0 B2.0 F2.1 B2.1"});
  EXPECT_EQ(TimeOfRank1(2 * kStoredBytes - 1).memory_ns, 12);
  EXPECT_EQ(TimeOfRank1(2 * kStoredBytes).memory_ns, 0);
}

TEST_F(BubbleTest, ARankDrainsFromItsLastPassOfAnyKindToTheLastOneOfTheReplica) {
  // Rank 0 ends last; rank 2 ends with its second weight pass.
  given_.SetPasses(0, {"F0.0 F0.1 I0.0 W0.0 I0.1 W0.1", "F1.0 B1.0 F1.1 B1.1", "F2.0 B2.0 F2.1 I2.1 W2.1"});
  const ProgramSet programs = given_.Programs();
  Simulator simulator;
  ASSERT_TRUE(simulator.Run(programs).ok());
  const std::vector<RankTime> times =
      ExplainTime(programs, simulator, given_.topology(), {.common = kPlenty});
  // Second micro-batch: FORWARD of rank 1 73-83, rank 2 84-94, BACKWARD_INPUT there 94-104, its weight pass
  // until 114; BACKWARD of rank 1 105-125, BACKWARD_INPUT of rank 0 126-136, its weight pass until 146.
  EXPECT_EQ(LastPassEnd(programs, simulator), 146);
  EXPECT_EQ(times[0].drain_ns, 0);
  EXPECT_EQ(times[1].drain_ns, 21);
  EXPECT_EQ(times[2].drain_ns, 32);
}

}  // namespace
}  // namespace penstock::core
