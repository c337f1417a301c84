// Hand-computed timelines.
#include "planner/core/simulate/simulator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>

namespace penstock::core {
namespace {

using ::testing::ElementsAre;

// Builds programs rank by rank.
class Builder {
 public:
  int32_t Add(Op op, Stream stream, int64_t duration, std::initializer_list<int32_t> deps,
              int32_t joint = -1) {
    Instruction instruction;
    instruction.op = op;
    instruction.stream = stream;
    instruction.duration_ns = duration;
    instruction.joint = joint;
    instruction.deps_begin = static_cast<int32_t>(set.deps.size());
    set.deps.insert(set.deps.end(), deps);
    instruction.deps_end = static_cast<int32_t>(set.deps.size());
    set.instructions.push_back(instruction);
    const auto position = static_cast<int32_t>(set.instructions.size()) - 1;
    if (op == Op::kSend) Ends(joint).send = position;
    if (op == Op::kRecv) Ends(joint).recv = position;
    return position - set.rank_begin.back();
  }
  void EndRank() { set.rank_begin.push_back(static_cast<int32_t>(set.instructions.size())); }

  ProgramSet set;

 private:
  Transfer& Ends(int32_t transfer) {
    if (set.transfers.size() <= static_cast<size_t>(transfer)) set.transfers.resize(transfer + 1);
    set.transfers[transfer].to_rank = 1;
    return set.transfers[transfer];
  }
};

TEST(SimulatorTest, InstructionsOfAStreamRunOneAfterAnother) {
  Builder builder;
  builder.Add(Op::kForward, Stream::kCompute, 5, {});
  builder.Add(Op::kBackward, Stream::kCompute, 7, {});
  builder.EndRank();
  Simulator simulator;
  ASSERT_TRUE(simulator.Run(builder.set).ok());
  EXPECT_THAT(simulator.start_ns(), ElementsAre(0, 5));
  EXPECT_EQ(simulator.makespan_ns(), 12);
}

TEST(SimulatorTest, StreamsRunSideBySideUntilADependencyJoinsThem) {
  Builder builder;
  builder.Add(Op::kForward, Stream::kCompute, 5, {});
  const int32_t other = builder.Add(Op::kReduceGradients, Stream::kCollective, 9, {}, 0);
  builder.Add(Op::kBackward, Stream::kCompute, 1, {other});
  builder.EndRank();
  builder.set.collectives.push_back({0, 0, 0, 1});
  Simulator simulator;
  ASSERT_TRUE(simulator.Run(builder.set).ok());
  EXPECT_THAT(simulator.start_ns(), ElementsAre(0, 0, 9));
}

TEST(SimulatorTest, ATransferStartsWhenBothEndsHaveComeToIt) {
  Builder builder;
  // Rank 0 computes 4, then sends; rank 1 receives an earlier transfer first.
  const int32_t forward = builder.Add(Op::kForward, Stream::kCompute, 4, {});
  builder.Add(Op::kSend, Stream::kNext, 10, {forward}, 0);
  builder.Add(Op::kSend, Stream::kNext, 3, {forward}, 1);
  builder.EndRank();
  const int32_t first = builder.Add(Op::kRecv, Stream::kPrevious, 10, {}, 0);
  const int32_t second = builder.Add(Op::kRecv, Stream::kPrevious, 3, {}, 1);
  builder.Add(Op::kWait, Stream::kCompute, 0, {first});
  builder.Add(Op::kForward, Stream::kCompute, 2, {});
  builder.Add(Op::kWait, Stream::kCompute, 0, {second});
  builder.EndRank();
  Simulator simulator;
  ASSERT_TRUE(simulator.Run(builder.set).ok());
  EXPECT_THAT(simulator.start_ns(), ElementsAre(0, 4, 14, 4, 14, 14, 14, 17));
  EXPECT_EQ(simulator.makespan_ns(), 17);
}

TEST(SimulatorTest, ACollectiveStartsWithItsLastMemberAndEachTakesItsOwnTime) {
  Builder builder;
  builder.Add(Op::kForward, Stream::kCompute, 3, {});
  builder.Add(Op::kOptimizerStep, Stream::kCompute, 5, {}, 0);
  builder.EndRank();
  builder.Add(Op::kForward, Stream::kCompute, 8, {});
  builder.Add(Op::kOptimizerStep, Stream::kCompute, 2, {}, 0);
  builder.EndRank();
  builder.set.collectives.push_back({0, 0, 8, 2});
  Simulator simulator;
  ASSERT_TRUE(simulator.Run(builder.set).ok());
  EXPECT_THAT(simulator.start_ns(), ElementsAre(0, 8, 0, 8));
  EXPECT_THAT(simulator.end_ns(), ElementsAre(3, 13, 8, 10));
}

TEST(SimulatorTest, ProgramsThatBlockEachOtherAreRefusedAndTheInstructionIsNamed) {
  Builder builder;
  builder.Add(Op::kSend, Stream::kNext, 1, {}, 0);
  builder.Add(Op::kSend, Stream::kNext, 1, {}, 1);
  builder.EndRank();
  // The other way round.
  builder.Add(Op::kRecv, Stream::kPrevious, 1, {}, 1);
  builder.Add(Op::kRecv, Stream::kPrevious, 1, {}, 0);
  builder.EndRank();
  Simulator simulator;
  const absl::Status status = simulator.Run(builder.set);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("rank 0 stands at instruction 0"));
}

}  // namespace
}  // namespace penstock::core
