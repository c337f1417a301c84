// Which rounds are begun when, and which passes wait for which of them.
#include "worker/runtime/parameter_rounds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "tests/unit/worker/runtime/rounds_fixture.h"

namespace penstock::worker {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kAll = std::numeric_limits<int64_t>::max();

// How long passes have waited is told, however short.
class TellingTimer : public InstructionTimer {
 public:
  absl::Status StartIteration(const Program&) override { return absl::OkStatus(); }
  absl::Status Begin(const Instruction&) override { return absl::OkStatus(); }
  absl::Status End(const Instruction&) override { return absl::OkStatus(); }
  void Waited(int64_t) override { ++told; }
  absl::StatusOr<IterationTimes> Finish() override { return IterationTimes(); }

  int told = 0;
};

class ParameterRoundsTest : public RoundsFixture {
 protected:
  ParameterRoundsTest() { parts_.timer = &timer_; }

  // Where the parameters of each layer of a stage end, the lowest first.
  std::vector<int64_t> Ends(uint32_t stage) const {
    std::vector<int64_t> ends = Begins(stage);
    ends.insert(ends.begin(), kAll);
    ends.pop_back();
    return {ends.rbegin(), ends.rend()};
  }

  TellingTimer timer_;
};

TEST_F(ParameterRoundsTest, ComeFromTheLowestLayerUpAndPassesWaitForTheirs) {
  Add(Op::kForward, 0);
  ParameterRounds rounds(parts_, program_);
  ASSERT_TRUE(rounds.BringFirst().ok());
  EXPECT_EQ(communicator_.exchanges, 2) << "the lowest layer's, and the next one travels";
  ASSERT_TRUE(rounds.BringOthers().ok());
  EXPECT_EQ(communicator_.exchanges, 4);
  EXPECT_THAT(order_.counts_awaited, ElementsAre(2));
  const ParametersNeeded needed = rounds.For(0);
  ASSERT_TRUE(needed);
  const std::vector<int64_t> ends = Ends(0);
  needed(ends[0]);
  EXPECT_THAT(order_.counts_awaited, ElementsAre(2)) << "it is there";
  needed(ends[1] - 1);
  needed(ends[1]);
  EXPECT_THAT(order_.counts_awaited, ElementsAre(2, 3));
  needed(ends[3]);
  EXPECT_THAT(order_.counts_awaited, ElementsAre(2, 3, 5)) << "the last one ends with a work of its own";
  EXPECT_EQ(timer_.told, 4);
  ASSERT_TRUE(rounds.AwaitAllOf(0).ok());
  EXPECT_FALSE(rounds.For(0)) << "nothing is left to wait for";
  EXPECT_EQ(communicator_.aborted, 0);
}

TEST_F(ParameterRoundsTest, OfAnUpperStageComeBehindThoseOfTheLowerOne) {
  Hold({2, 2});
  Add(Op::kForward, 0);
  Add(Op::kForward, 1);
  ParameterRounds rounds(parts_, program_);
  ASSERT_TRUE(rounds.BringFirst().ok());
  ASSERT_TRUE(rounds.BringOthers().ok());
  ASSERT_TRUE(rounds.AwaitAllOf(0).ok());
  EXPECT_THAT(order_.counts_awaited, ElementsAre(2, 3));
  EXPECT_FALSE(rounds.For(0));
  rounds.For(1)(Ends(1)[0]);
  EXPECT_THAT(order_.counts_awaited, ElementsAre(2, 3, 4));
  ASSERT_TRUE(rounds.AwaitAllOf(1).ok());
  EXPECT_THAT(order_.counts_awaited, ElementsAre(2, 3, 4, 5));
}

TEST_F(ParameterRoundsTest, AreWaitedForAtOnceWhereThereIsNoPass) {
  ParameterRounds rounds(parts_, program_);
  ASSERT_TRUE(rounds.BringFirst().ok());
  EXPECT_EQ(communicator_.exchanges, 4);
  EXPECT_THAT(order_.counts_awaited, ElementsAre(5));
  ASSERT_TRUE(rounds.BringOthers().ok());
  EXPECT_EQ(order_.begun, 5);
}

TEST_F(ParameterRoundsTest, AreNoneWithoutShares) {
  Add(Op::kForward, 0);
  parts_.resharding = nullptr;
  ParameterRounds rounds(parts_, program_);
  EXPECT_FALSE(rounds.For(0));
  EXPECT_TRUE(rounds.AwaitAllOf(0).ok());
}

TEST_F(ParameterRoundsTest, APassBeforeTheyAreBegunIsAnErrorAndNoWait) {
  Add(Op::kForward, 0);
  ParameterRounds rounds(parts_, program_);
  rounds.For(0)(kAll);
  EXPECT_EQ(rounds.AwaitAllOf(0).code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(order_.counts_awaited.empty());
}

TEST_F(ParameterRoundsTest, AbortWhereAnIterationFailsWithRoundsUnderWay) {
  Add(Op::kForward, 0);
  {
    ParameterRounds rounds(parts_, program_);
    ASSERT_TRUE(rounds.BringFirst().ok());
  }
  EXPECT_EQ(communicator_.aborted, 1);
  EXPECT_EQ(order_.awaited, 1);
  { ParameterRounds rounds(parts_, program_); }
  EXPECT_EQ(communicator_.aborted, 1) << "nothing was under way";
}

TEST_F(ParameterRoundsTest, APassThatCouldNotWaitIsToldBehindIt) {
  Add(Op::kForward, 0);
  ParameterRounds rounds(parts_, program_);
  ASSERT_TRUE(rounds.BringFirst().ok());
  ASSERT_TRUE(rounds.BringOthers().ok());
  order_.works = false;
  rounds.For(0)(kAll);
  EXPECT_EQ(rounds.AwaitAllOf(0).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(order_.counts_awaited.size(), 2) << "once an error, it waits no more";
}

}  // namespace
}  // namespace penstock::worker
