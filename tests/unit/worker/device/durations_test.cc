#include "worker/device/simulated/durations.h"

#include <gtest/gtest.h>

#include <cmath>

namespace penstock::worker {
namespace {

constexpr int64_t kExpected = 1'000'000;

// Of rank `rank`, with a transfer to or from `peer`: 0 LOAD, 1 FORWARD, 2 BACKWARD, 3 the transfer, 4 REDUCE
// with ranks 0, 2 and 5, 5 STEP.
Program ProgramOf(uint32_t rank, uint32_t peer, Op transfer) {
  Program program;
  program.rank = rank;
  program.iteration = 3;
  program.instructions = {
      {.id = 0, .op = Op::kLoad},
      {.id = 1, .op = Op::kForward, .expected_duration_ns = kExpected},
      {.id = 2, .op = Op::kBackward, .expected_duration_ns = kExpected},
      {.id = 3, .op = transfer, .stream = Stream::kNext, .expected_duration_ns = kExpected},
      {.id = 4, .op = Op::kReduceGradients, .stream = Stream::kCollective, .expected_duration_ns = kExpected},
      {.id = 5, .op = Op::kOptimizerStep, .expected_duration_ns = kExpected}};
  program.transfers = {{.peer = peer, .sequence = 11}};
  program.groups = {{0, 2, 5}};
  return program;
}

int64_t Duration(const SimulationOptions& options, uint32_t id) {
  const Program program = ProgramOf(2, 1, Op::kSend);
  return SimulatedDurations(options, 2).Of(program, program.instructions[id]);
}

TEST(SimulatedDurationsTest, AreThoseOfThePlan) {
  EXPECT_EQ(Duration({}, 0), 0);
  for (uint32_t id = 1; id < 6; ++id) EXPECT_EQ(Duration({}, id), kExpected) << id;
}

TEST(SimulatedDurationsTest, AreThoseOfTheProfileWhereThePlanHasOthers) {
  Program program = ProgramOf(2, 1, Op::kSend);
  program.instructions[1].profile_duration_ns = kExpected / 4;
  program.instructions[2].joint = true;
  program.instructions[2].own_duration_ns = kExpected / 2;
  program.instructions[2].profile_duration_ns = kExpected / 8;
  const SimulatedDurations durations({.slow_ranks = {{2, 3}}}, 2);
  EXPECT_EQ(durations.Of(program, program.instructions[1]), kExpected / 4 * 3);
  EXPECT_EQ(durations.Of(program, program.instructions[2]), kExpected / 8 * 3);
}

TEST(SimulatedDurationsTest, ASlowRankComputesSlowly) {
  const SimulationOptions options = {.slow_ranks = {{2, 1.5}, {1, 7}}};
  EXPECT_EQ(Duration(options, 0), 0);
  EXPECT_EQ(Duration(options, 1), kExpected * 3 / 2);
  EXPECT_EQ(Duration(options, 5), kExpected * 3 / 2);
  EXPECT_EQ(Duration(options, 3), kExpected) << "links are as fast as ever";
  EXPECT_EQ(Duration(options, 4), kExpected);
}

// A fifth of what it takes alone is waiting for others.
TEST(SimulatedDurationsTest, OfAJointPassASlowRankComputesSlowly) {
  Program program = ProgramOf(2, 1, Op::kSend);
  Instruction& pass = program.instructions[2];
  pass.joint = true;
  pass.own_duration_ns = kExpected / 2;
  pass.exchange_ns = kExpected / 10;
  EXPECT_EQ(SimulatedDurations({}, 2).ComputingOf(program, pass), kExpected / 10 * 4);
  EXPECT_EQ(SimulatedDurations({.slow_ranks = {{2, 3}}}, 2).ComputingOf(program, pass), kExpected / 10 * 12);
  EXPECT_EQ(SimulatedDurations({.slow_ranks = {{1, 3}}}, 2).ComputingOf(program, pass), kExpected / 10 * 4);
  pass.profile_duration_ns = kExpected;
  EXPECT_EQ(SimulatedDurations({}, 2).ComputingOf(program, pass), kExpected / 10 * 9);
  pass.profile_duration_ns = kExpected / 20;
  EXPECT_EQ(SimulatedDurations({}, 2).ComputingOf(program, pass), 0);
}

TEST(SimulatedDurationsTest, AHostThatStallsDoesSoBeforePassesOfItsRank) {
  const Program program = ProgramOf(2, 1, Op::kSend);
  const SimulationOptions options = {.host_stalls = {{2, 0.25}, {1, 7}}};
  const SimulatedDurations durations(options, 2);
  for (uint32_t id = 0; id < 6; ++id) {
    const bool pass = id == 1 || id == 2;
    EXPECT_EQ(durations.HostNs(program.instructions[id]), pass ? 250'000'000 : 0) << id;
    EXPECT_EQ(durations.Of(program, program.instructions[id]), Duration({}, id)) << id;
  }
}

TEST(SimulatedDurationsTest, ASlowLinkSlowsTransfersAndTheReductionsOverIt) {
  EXPECT_EQ(Duration({.slow_links = {{1, 2, 4}}}, 3), 4 * kExpected);
  EXPECT_EQ(Duration({.slow_links = {{2, 1, 4}}}, 3), 4 * kExpected);
  EXPECT_EQ(Duration({.slow_links = {{2, 3, 4}}}, 3), kExpected);
  EXPECT_EQ(Duration({.slow_links = {{1, 2, 4}}}, 1), kExpected);
  EXPECT_EQ(Duration({.slow_links = {{0, 5, 4}}}, 4), 4 * kExpected);
  EXPECT_EQ(Duration({.slow_links = {{0, 1, 4}}}, 4), kExpected);
}

TEST(SimulatedDurationsTest, AStallLengthensTheFirstComputationOfItsIteration) {
  const SimulationOptions options = {.stalls = {{2, 3, 0.5}, {2, 4, 9}, {1, 3, 9}}};
  EXPECT_EQ(Duration(options, 1), kExpected + 500'000'000);
  EXPECT_EQ(Duration(options, 2), kExpected);
}

TEST(SimulatedDurationsTest, NoiseIsAFunctionOfItsSeed) {
  EXPECT_EQ(Duration({.noise = 0.1, .noise_seed = 5}, 1), Duration({.noise = 0.1, .noise_seed = 5}, 1));
  EXPECT_NE(Duration({.noise = 0.1, .noise_seed = 5}, 1), Duration({.noise = 0.1, .noise_seed = 6}, 1));
  EXPECT_NE(Duration({.noise = 0.1, .noise_seed = 5}, 1), Duration({.noise = 0.1, .noise_seed = 5}, 2));
}

TEST(SimulatedDurationsTest, NoiseHasTheMeanAndDeviationAskedFor) {
  constexpr int kDraws = 20'000;
  double sum = 0;
  double squares = 0;
  for (int seed = 0; seed < kDraws; ++seed) {
    const double factor =
        static_cast<double>(Duration({.noise = 0.2, .noise_seed = static_cast<uint64_t>(seed)}, 1)) /
        kExpected;
    EXPECT_GT(factor, 0);
    sum += factor;
    squares += factor * factor;
  }
  const double mean = sum / kDraws;
  EXPECT_NEAR(mean, 1, 0.01);
  EXPECT_NEAR(std::sqrt(squares / kDraws - mean * mean), 0.2, 0.01);
}

TEST(SimulatedDurationsTest, BothEndsOfATransferAgree) {
  const SimulationOptions options = {.noise = 0.3, .noise_seed = 4, .slow_links = {{1, 2, 2}}};
  const Program sender = ProgramOf(2, 1, Op::kSend);
  const Program receiver = ProgramOf(1, 2, Op::kRecv);
  EXPECT_EQ(SimulatedDurations(options, 2).Of(sender, sender.instructions[3]),
            SimulatedDurations(options, 1).Of(receiver, receiver.instructions[3]));
}

}  // namespace
}  // namespace penstock::worker
