// Which rounds go when: beside which passes, and what is left to the RESHARD of gradients.
#include "worker/runtime/gradient_rounds.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/unit/worker/runtime/rounds_fixture.h"

namespace penstock::worker {
namespace {

using GradientRoundsTest = RoundsFixture;

TEST_F(GradientRoundsTest, LetRoundsGoAsTheLastPassOfAStageMakesThem) {
  const Instruction& first = Add(Op::kBackward, 0);
  const Instruction& last = Add(Op::kBackward, 0);
  GradientRounds rounds(parts_, program_);
  EXPECT_FALSE(rounds.During(first)) << "more is added to every gradient";
  const GradientsReady ready = rounds.During(last);
  ASSERT_TRUE(ready);
  const std::vector<int64_t> begins = Begins(0);
  ASSERT_EQ(begins.size(), 4U);
  ready(begins[0] + 1);
  EXPECT_EQ(communicator_.exchanges, 0) << "not all of the round has been made";
  ready(begins[0]);
  EXPECT_EQ(communicator_.exchanges, 1);
  ready(begins[2]);
  EXPECT_EQ(communicator_.exchanges, 3) << "a pass may tell of several rounds at once";
  EXPECT_EQ(order_.begun, 2);
  ready(0);
  EXPECT_EQ(communicator_.exchanges, 3) << "the last round has what comes before the layers";
  ASSERT_TRUE(rounds.Take().ok());
  EXPECT_EQ(communicator_.exchanges, 4);
  EXPECT_EQ(order_.awaited, 1);
}

TEST_F(GradientRoundsTest, TakeAllAtOnceWhereNoPassTellsOfThem) {
  Add(Op::kBackward, 0);
  GradientRounds rounds(parts_, program_);
  ASSERT_TRUE(rounds.Take().ok());
  EXPECT_EQ(communicator_.exchanges, 4);
  EXPECT_EQ(order_.begun, 0);
}

TEST_F(GradientRoundsTest, OfASplitPassTheWeightsAreLast) {
  const Instruction& input = Add(Op::kBackwardInput, 0);
  const Instruction& weight = Add(Op::kBackwardWeight, 0);
  GradientRounds rounds(parts_, program_);
  EXPECT_FALSE(rounds.During(input));
  EXPECT_TRUE(rounds.During(weight));
}

TEST_F(GradientRoundsTest, OfAnUpperStageGoBesideThePassesOfTheLowerOne) {
  Hold({2, 2});
  const Instruction& upper = Add(Op::kBackward, 1);
  const Instruction& lower = Add(Op::kBackward, 0);
  GradientRounds rounds(parts_, program_);
  rounds.During(upper)(Begins(1).front());
  EXPECT_EQ(communicator_.exchanges, 1);
  // What the pass did not tell of has been made when it has ended.
  rounds.During(lower)(Begins(0).front());
  EXPECT_EQ(communicator_.exchanges, 3);
  ASSERT_TRUE(rounds.Take().ok());
  EXPECT_EQ(communicator_.exchanges, 4);
}

// Weights may be put off: the upper stage's come last, and its rounds are the first ones.
TEST_F(GradientRoundsTest, WaitForAnUpperStageThatEndsLast) {
  Hold({2, 2});
  const Instruction& lower = Add(Op::kBackward, 0);
  const Instruction& upper = Add(Op::kBackwardWeight, 1);
  GradientRounds rounds(parts_, program_);
  rounds.During(lower)(Begins(0).back());
  EXPECT_EQ(communicator_.exchanges, 0);
  rounds.During(upper)(Begins(1).back());
  EXPECT_EQ(communicator_.exchanges, 3);
}

TEST_F(GradientRoundsTest, AbortWhereAnIterationFailsWithRoundsUnderWay) {
  const Instruction& last = Add(Op::kBackward, 0);
  {
    GradientRounds rounds(parts_, program_);
    rounds.During(last)(Begins(0).front());
  }
  EXPECT_EQ(communicator_.aborted, 1);
  EXPECT_EQ(order_.awaited, 1);
  { GradientRounds rounds(parts_, program_); }
  EXPECT_EQ(communicator_.aborted, 1) << "nothing was under way";
}

TEST_F(GradientRoundsTest, SayWhyTheyCouldNotBegin) {
  const Instruction& last = Add(Op::kBackward, 0);
  GradientRounds rounds(parts_, program_);
  order_.works = false;
  rounds.During(last)(Begins(0).front());
  EXPECT_EQ(rounds.status().code(), absl::StatusCode::kUnavailable);
  rounds.During(last)(Begins(0).back());
  EXPECT_EQ(order_.begun, 1) << "nothing goes on behind an error";
}

}  // namespace
}  // namespace penstock::worker
