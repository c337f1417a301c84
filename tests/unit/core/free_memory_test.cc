// Programs that need more memory than there is, and what is recomputed for them.
#include "planner/core/fit/free_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "planner/core/comm/build_programs.h"
#include "planner/core/contract/batch_from_proto.h"
#include "planner/core/contract/job_from_proto.h"
#include "planner/core/contract/profile_from_proto.h"
#include "planner/core/simulate/memory_account.h"
#include "tests/unit/core/job_builder.h"

namespace penstock::core {
namespace {

using ::testing::ElementsAre;
using ::testing::FieldsAre;

Instruction MakeInstruction(Op op, int32_t micro_batch, int64_t acquired, int64_t released) {
  Instruction instruction;
  instruction.op = op;
  instruction.micro_batch = micro_batch;
  instruction.acquired_bytes = acquired;
  instruction.released_bytes = released;
  return instruction;
}

// Two micro-batches, the second one first back.
ProgramSet LastInFirstOut(Op backward) {
  ProgramSet programs;
  programs.instructions = {MakeInstruction(Op::kForward, 0, 100, 0), MakeInstruction(Op::kForward, 1, 100, 0),
                           MakeInstruction(backward, 1, 50, 150), MakeInstruction(Op::kBackward, 0, 10, 110)};
  programs.rank_begin = {0, 4};
  programs.static_bytes = {1000};
  return programs;
}

TEST(MemoryAccountTest, AMicroBatchIsHeldUntilItsBackwardPassEnds) {
  const ProgramSet programs = LastInFirstOut(Op::kBackward);
  const RankMemory memory = AccountMemory(programs)[0];
  EXPECT_EQ(memory.peak_bytes, 1250);
  EXPECT_THAT(HeldAtPeak(programs, 0, memory), ElementsAre(FieldsAre(0, 0), FieldsAre(1, 0)));
}

TEST(MemoryAccountTest, WhatASplitBackwardPassKeepsIsNotHeld) {
  const ProgramSet programs = LastInFirstOut(Op::kBackwardInput);
  EXPECT_THAT(HeldAtPeak(programs, 0, AccountMemory(programs)[0]), ElementsAre(FieldsAre(0, 0)));
}

// Four micro-batches of a replica of two stages, with plenty of memory.
class FreeMemoryTest : public ::testing::Test {
 protected:
  void Make(v1::Recompute recompute) {
    v1::JobSpec spec = GptJob(2, 1, v1::POLICY_DYNAMIC);
    spec.mutable_planning()->set_recompute(recompute);
    // A split backward pass would keep what was recomputed.
    spec.mutable_planning()->set_schedule(v1::SCHEDULE_READY_FIRST);
    job_ = *JobFromProto(spec);
    samples_ = BatchFromProto(MakeBatch({{100, 0}, {200, 0}, {300, 0}, {400, 0}}), job_)->samples;
    costs_.emplace(*ProfileFromProto(spec.profile(), job_.architecture), job_);
    space_.emplace(*costs_, job_, AvailableBytes(job_, *costs_));
    evaluator_.emplace(*space_);
    candidate_.emplace(MakeCandidate(*space_, samples_, Groups{{0}, {1}, {2}, {3}}, Layout::kPacked));
    Evaluate(&*evaluator_, &*candidate_);
  }

  ProgramSet Programs() {
    ReplicaPipeline pipeline;
    const CandidateReplica& part = candidate_->replicas[0];
    EXPECT_TRUE(evaluator_->MakePipeline(candidate_->table, part.slots, part.rules, candidate_->orders[0], 0,
                                         &pipeline));
    return *BuildPrograms(*costs_, {&pipeline, 1});
  }

  static int64_t Peak(const ProgramSet& programs) {
    const std::vector<RankMemory> memory = AccountMemory(programs);
    return std::max(memory[0].peak_bytes, memory[1].peak_bytes);
  }

  Job job_;
  std::vector<SampleTokens> samples_;
  std::optional<CostModel> costs_;
  std::optional<ScheduleSpace> space_;
  std::optional<ReplicaEvaluator> evaluator_;
  std::optional<Candidate> candidate_;
};

TEST_F(FreeMemoryTest, RecomputesJustSoMuchThatTheProgramsFit) {
  Make(v1::RECOMPUTE_AUTO);
  const ProgramSet before = Programs();
  const int64_t makespan = candidate_->makespan;
  const int64_t limit = Peak(before) - 1;
  ASSERT_TRUE(FreeMemory(before, {.common = limit}, &*evaluator_, &*candidate_));
  EXPECT_LE(Peak(Programs()), limit);
  EXPECT_GE(candidate_->makespan, makespan);
  // One layer of one micro-batch is enough for a byte.
  int levels = 0;
  for (const int32_t slot : candidate_->replicas[0].slots) {
    for (const int32_t level : candidate_->table.levels(slot)) levels += level;
  }
  EXPECT_EQ(levels, 1);
}

TEST_F(FreeMemoryTest, TheOrderOfPassesStays) {
  Make(v1::RECOMPUTE_AUTO);
  const auto passes = [](const ProgramSet& programs) {
    std::vector<std::pair<Op, int32_t>> all;
    for (const Instruction& instruction : programs.instructions) {
      if (IsPass(instruction.op)) all.emplace_back(instruction.op, instruction.micro_batch);
    }
    return all;
  };
  const ProgramSet before = Programs();
  ASSERT_TRUE(FreeMemory(before, {.common = Peak(before) - 1000}, &*evaluator_, &*candidate_));
  const ProgramSet after = Programs();
  EXPECT_LT(Peak(after), Peak(before));
  EXPECT_EQ(passes(after), passes(before));
}

TEST_F(FreeMemoryTest, CanDoNothingWhereNothingMayBeRecomputed) {
  Make(v1::RECOMPUTE_NONE);
  const ProgramSet programs = Programs();
  EXPECT_FALSE(FreeMemory(programs, {.common = Peak(programs) - 1}, &*evaluator_, &*candidate_));
}

TEST_F(FreeMemoryTest, LeavesProgramsAloneThatFit) {
  Make(v1::RECOMPUTE_AUTO);
  const ProgramSet programs = Programs();
  const int64_t makespan = candidate_->makespan;
  EXPECT_TRUE(FreeMemory(programs, {.common = Peak(programs)}, &*evaluator_, &*candidate_));
  EXPECT_EQ(candidate_->makespan, makespan);
}

}  // namespace
}  // namespace penstock::core
