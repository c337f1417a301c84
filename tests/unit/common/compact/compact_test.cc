// What is packed comes back bit for bit, and is small.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/compact/instruction_columns.h"
#include "common/compact/packed_plan.h"
#include "common/compact/packed_program.h"
#include "penstock/v1/planner_service.pb.h"
#include "planner/core/planner.h"
#include "planner/service/engine/program_message.h"
#include "tests/support/message_mutator.h"
#include "tests/unit/core/job_builder.h"
#include "tests/unit/core/random_job.h"

namespace penstock {
namespace {

constexpr core::RandomJobLimits kLimits = {.context = 4,
                                           .tensor = 2,
                                           .expert_percent = 40,
                                           .slow_percent = 30,
                                           .shares_percent = 20,
                                           .windows_percent = 20};

// Random jobs that have a plan; every second one with a validation.
std::vector<v1::PlannedBatch> Planned(int jobs) {
  std::vector<v1::PlannedBatch> planned;
  for (uint64_t seed = 0; static_cast<int>(planned.size()) < jobs; ++seed) {
    const core::RandomPlanningCase one = core::MakeRandomCase(seed, kLimits);
    const auto planner = core::Planner::Create(one.job, core::Planner::Explain::kCauseAlone);
    if (!planner.ok()) continue;
    absl::StatusOr<v1::Plan> plan = (*planner)->MakePlan(one.batch);
    if (!plan.ok()) continue;
    v1::PlannedBatch& added = planned.emplace_back();
    *added.mutable_batch() = one.batch;
    *added.mutable_plan() = *std::move(plan);
    if (planned.size() % 2 == 0) continue;
    *added.mutable_batch()->mutable_validation() = one.batch;
    *added.mutable_plan()->mutable_validation() = (*planner)->MakeForwardPlan(one.batch).value();
  }
  return planned;
}

TEST(CompactTest, PlansOfEveryKindComeBackBitForBit) {
  for (const v1::PlannedBatch& planned : Planned(150)) {
    const PackedPlan packed(planned.plan());
    for (int rank = 0; rank < planned.plan().programs_size(); ++rank) {
      EXPECT_TRUE(packed.frame().programs(rank).instructions().empty());
      EXPECT_EQ(packed.Program(rank)->SerializeAsString(), planned.plan().programs(rank).SerializeAsString());
      std::vector<v1::Op> ops;
      for (const v1::Instruction& instruction : planned.plan().programs(rank).instructions())
        ops.push_back(instruction.op());
      EXPECT_EQ(*packed.Ops(rank), ops);
    }
    EXPECT_EQ(packed.Plan()->SerializeAsString(), planned.plan().SerializeAsString());
  }
}

TEST(CompactTest, ReadersOfBothKindsAreSentTheSame) {
  for (const v1::PlannedBatch& planned : Planned(50)) {
    const PackedPlan packed(planned.plan());
    for (uint32_t rank = 0; rank < static_cast<uint32_t>(planned.plan().programs_size()); ++rank) {
      const std::string full =
          MakeProgramMessage(planned.batch(), planned.plan(), rank, {1, 2}).SerializeAsString();
      EXPECT_EQ(
          MakeProgramMessage(planned.batch(), packed, rank, {1, 2}, /*compact=*/false)->SerializeAsString(),
          full);
      auto compact = MakeProgramMessage(planned.batch(), packed, rank, {1, 2}, /*compact=*/true);
      EXPECT_TRUE(compact->program().instructions().empty());
      EXPECT_TRUE(compact->samples().empty());
      EXPECT_TRUE(compact->validation().program().instructions().empty());
      EXPECT_TRUE(compact->validation().samples().empty());
      ASSERT_TRUE(UnpackProgram(&*compact).ok());
      EXPECT_EQ(compact->SerializeAsString(), full);
    }
  }
}

TEST(CompactTest, WholePlansComeBackFromTheirColumns) {
  for (const v1::PlannedBatch& planned : Planned(50)) {
    v1::GetIterationResponse response;
    PackedPlan(planned.plan()).CompactTo(response.mutable_plan(), response.mutable_instruction_columns());
    for (const v1::Plan* const plan : {&response.plan(), &response.plan().validation()})
      for (const v1::Program& program : plan->programs()) EXPECT_TRUE(program.instructions().empty());
    ASSERT_TRUE(UnpackPrograms(response.mutable_instruction_columns(), response.mutable_plan()).ok());
    EXPECT_EQ(response.plan().SerializeAsString(), planned.plan().SerializeAsString());
  }
}

TEST(CompactTest, ColumnsOfAValidationMayNotBeMissing) {
  const v1::PlannedBatch planned = Planned(1).front();
  v1::GetIterationResponse response;
  PackedPlan(planned.plan()).CompactTo(response.mutable_plan(), response.mutable_instruction_columns());
  response.mutable_instruction_columns()->RemoveLast();
  EXPECT_FALSE(UnpackPrograms(response.mutable_instruction_columns(), response.mutable_plan()).ok());
}

TEST(CompactTest, InstructionsThatMakeNoSenseComeBackToo) {
  const v1::Program made =
      core::Planner::Create(core::GptJob(2, 1, v1::POLICY_DYNAMIC), core::Planner::Explain::kCauseAlone)
          .value()
          ->MakePlan(core::MakeBatch({{10, 20}, {5, 7}, {100, 3}, {9, 9}}))
          ->programs(0);
  int packed = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    v1::Program program = made;
    MessageMutator mutator(seed);
    for (int change = 0; change < 8; ++change) mutator.Apply(program);
    for (int id = 0; id < program.instructions_size(); ++id)
      program.mutable_instructions(id)->set_id(static_cast<uint32_t>(id));
    const std::vector<uint64_t> tokens = {30, 12, seed % 3 == 0 ? ~uint64_t{0} : 7};
    const auto columns = PackInstructions(program.instructions(), tokens);
    if (!columns.has_value()) continue;
    ++packed;
    Instructions again;
    ASSERT_TRUE(UnpackInstructions(*columns, tokens, 1 << 20, &again).ok());
    ASSERT_EQ(again.size(), program.instructions_size());
    for (int id = 0; id < again.size(); ++id)
      EXPECT_EQ(again.at(id).SerializeAsString(), program.instructions(id).SerializeAsString()) << seed;
  }
  EXPECT_GT(packed, 200);
}

TEST(CompactTest, IdsThatAreNoPositionsStayInFull) {
  v1::Plan plan;
  plan.add_replicas()->add_micro_batches()->set_computed_tokens(3);
  v1::Program* const program = plan.add_programs();
  program->add_stages(0);
  program->add_instructions()->set_id(7);
  const PackedPlan packed(plan);
  EXPECT_EQ(packed.columns(0), "");
  EXPECT_EQ(packed.frame().programs(0).instructions_size(), 1);
  EXPECT_EQ(packed.Plan()->SerializeAsString(), plan.SerializeAsString());
}

TEST(CompactTest, AProgramOfManyMicroBatchesTakesATenth) {
  std::vector<std::pair<uint32_t, uint32_t>> lengths;
  core::Random random(1);
  for (int i = 0; i < 2000; ++i) lengths.emplace_back(random.Range(1, 400), random.Range(1, 100));
  v1::JobSpec job = core::GptJob(4, 1, v1::POLICY_PACKED);
  job.mutable_planning()->set_token_cap(1000);
  const v1::Plan plan = core::Planner::Create(job, core::Planner::Explain::kCauseAlone)
                            .value()
                            ->MakePlan(core::MakeBatch(lengths))
                            .value();
  ASSERT_GT(plan.replicas(0).micro_batches_size(), 200);
  const PackedPlan packed(plan);
  EXPECT_LT(10 * packed.columns(1).size(), plan.programs(1).ByteSizeLong());
  EXPECT_LT(8 * packed.bytes(), plan.SpaceUsedLong());
}

}  // namespace
}  // namespace penstock
