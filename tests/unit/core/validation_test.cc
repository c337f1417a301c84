// Plans of validation: forward passes alone, of samples that are not learnt.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/mesh/mesh_ranks.h"
#include "common/process/sanitized.h"
#include "planner/core/audit/audit_plan.h"
#include "planner/core/strategies/strategy_planner.h"
#include "planner/core/verify/check_plan.h"
#include "tests/unit/core/golden_jobs.h"
#include "tests/unit/core/job_builder.h"
#include "tests/unit/core/random_job.h"

namespace penstock::core {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string Text(const std::vector<Violation>& violations) {
  return violations.empty() ? "" : violations.front().message;
}

v1::Batch WithValidation(v1::Batch batch, const v1::Batch& validation) {
  *batch.mutable_validation() = validation;
  batch.mutable_validation()->set_iteration(batch.iteration());
  return batch;
}

absl::StatusOr<v1::Plan> PlanOf(const v1::JobSpec& job, const v1::Batch& batch) {
  auto planner = StrategyPlanner::Create(job, Planner::Explain::kCauseAlone);
  if (!planner.ok()) return planner.status();
  const absl::Status valid = (*planner)->ValidateBatch(batch, Planner::Explain::kCauseAlone);
  if (!valid.ok()) return valid;
  return (*planner)->MakePlan(batch);
}

// The busiest rank's forward passes: no plan is faster.
int64_t ForwardWorkNs(const v1::Plan& plan) {
  int64_t most = 0;
  for (const v1::Program& program : plan.programs()) {
    int64_t work = 0;
    for (const v1::Instruction& instruction : program.instructions())
      if (instruction.op() == v1::OP_FORWARD) work += instruction.expected_duration_ns();
    most = std::max(most, work);
  }
  return most;
}

int64_t PeakBytes(const v1::Plan& plan) {
  int64_t most = 0;
  for (const v1::RankPrediction& rank : plan.predicted().ranks())
    most = std::max(most, rank.peak_memory_bytes());
  return most;
}

v1::Batch EqualSamples(int count) {
  return MakeBatch(std::vector<std::pair<uint32_t, uint32_t>>(count, {10, 54}));
}

v1::JobSpec FourStages() {
  v1::JobSpec job = GptJob(4, 1, v1::POLICY_PADDING);
  job.mutable_planning()->set_micro_batch_size(1);
  return job;
}

TEST(ValidationPlanTest, HoldsTheRulesOnRandomJobsAndLeavesTrainingAsItWas) {
  int planned = 0;
  for (uint64_t seed = 0; seed < (kSanitized ? 20 : 300); ++seed) {
    const RandomPlanningCase given = MakeRandomCase(seed, {.context = 4,
                                                           .tensor = 2,
                                                           .expert_percent = 25,
                                                           .slow_percent = 20,
                                                           .shares_percent = 25,
                                                           .weights_percent = 50,
                                                           .windows_percent = 20});
    SCOPED_TRACE(given.Describe());
    const absl::StatusOr<v1::Plan> training = PlanOf(given.job, given.batch);
    if (!training.ok()) continue;
    const v1::Batch batch = WithValidation(given.batch, given.batch);
    absl::StatusOr<v1::Plan> plan = PlanOf(given.job, batch);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(Text(CheckPlan(batch, *plan)), "");
    const auto audited = AuditPlan(batch, *plan, given.job.profile());
    ASSERT_TRUE(audited.ok()) << audited.status();
    EXPECT_EQ(Text(*audited), "");
    EXPECT_LE(plan->validation().predicted().makespan_ns(), training->predicted().last_backward_ns());
    EXPECT_GE(plan->validation().predicted().makespan_ns(), ForwardWorkNs(plan->validation()));
    plan->clear_validation();
    plan->set_content_hash(Planner::ContentHash(*plan));
    EXPECT_EQ(plan->SerializeAsString(), training->SerializeAsString());
    ++planned;
  }
  EXPECT_GT(planned, kSanitized ? 5 : 100);
}

TEST(ValidationPlanTest, TakesNoLongerThanTheForwardPassesOfTraining) {
  for (const GoldenJob& golden : JobsToRepeat()) {
    SCOPED_TRACE(golden.name);
    const v1::Batch batch = WithValidation(golden.given.batch, golden.given.batch);
    const absl::StatusOr<v1::Plan> plan = PlanOf(golden.given.job, batch);
    ASSERT_TRUE(plan.ok()) << plan.status();
    int64_t last_forward = 0;
    for (const v1::Program& program : plan->programs())
      for (const v1::Instruction& instruction : program.instructions())
        if (instruction.op() == v1::OP_FORWARD)
          last_forward =
              std::max(last_forward, instruction.expected_start_ns() + instruction.expected_duration_ns());
    EXPECT_LE(plan->validation().predicted().makespan_ns(), last_forward);
  }
}

// A stage that is done early does not run ahead of the one above.
TEST(ValidationPlanTest, TakesAsMuchMemoryForManyMicroBatchesAsForFew) {
  v1::JobSpec job = FourStages();
  job.mutable_planning()->mutable_layers_per_stage()->Clear();
  for (const uint32_t layers : {1, 1, 1, 5}) job.mutable_planning()->add_layers_per_stage(layers);
  std::vector<int64_t> peaks;
  for (const int samples : {8, 200}) {
    const v1::Batch batch = WithValidation(EqualSamples(8), EqualSamples(samples));
    const absl::StatusOr<v1::Plan> plan = PlanOf(job, batch);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(Text(CheckPlan(batch, *plan)), "");
    peaks.push_back(PeakBytes(plan->validation()));
  }
  EXPECT_EQ(peaks[0], peaks[1]);
}

TEST(ValidationPlanTest, KeepsAllStagesBusyWhereTheyAreEven) {
  const v1::Batch batch = WithValidation(EqualSamples(8), EqualSamples(100));
  const absl::StatusOr<v1::Plan> plan = PlanOf(FourStages(), batch);
  ASSERT_TRUE(plan.ok()) << plan.status();
  // The last of four stages begins three passes late.
  EXPECT_LT(static_cast<double>(plan->validation().predicted().makespan_ns()),
            1.06 * static_cast<double>(ForwardWorkNs(plan->validation())));
}

TEST(ValidationPlanTest, OfSharesBeginsWithTheParametersThatTheIterationLeft) {
  v1::JobSpec job = FourStages();
  job.mutable_planning()->set_parameter_shares(true);
  const v1::Batch batch = WithValidation(EqualSamples(8), EqualSamples(2));
  const absl::StatusOr<v1::Plan> plan = PlanOf(job, batch);
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (const v1::Program& program : plan->validation().programs()) {
    ASSERT_FALSE(program.instructions().empty());
    EXPECT_EQ(program.instructions(0).op(), v1::OP_RESHARD);
    EXPECT_EQ(program.instructions(0).part(), 0);
  }
}

// What no rank of a replica has to do is an empty program.
TEST(ValidationPlanTest, MayHaveFewerSamplesThanReplicas) {
  const v1::Batch batch = WithValidation(EqualSamples(8), EqualSamples(1));
  const absl::StatusOr<v1::Plan> plan = PlanOf(GptJob(2, 3, v1::POLICY_DYNAMIC), batch);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(Text(CheckPlan(batch, *plan)), "");
  const auto empty = std::ranges::count_if(plan->validation().programs(), [](const v1::Program& program) {
    return program.instructions().empty();
  });
  EXPECT_EQ(empty, 4);
}

TEST(ValidationPlanTest, ErrorsNameTheValidation) {
  const v1::Batch batch = WithValidation(EqualSamples(8), MakeBatch({{0, 8}, {0, 1'000'000}}));
  EXPECT_THAT(std::string(PlanOf(FourStages(), batch).status().message()),
              HasSubstr("batch.validation.samples[1]"));
}

v1::JobSpec JobOfStrategies(const std::vector<std::vector<v1::Mesh>>& strategies) {
  const v1::Mesh& first = strategies.front().front();
  v1::JobSpec job = GptJob(first.pipeline(), first.data(), v1::POLICY_DYNAMIC);
  job.mutable_planning()->set_parameter_shares(true);
  job.mutable_planning()->clear_layers_per_stage();
  for (const std::vector<v1::Mesh>& meshes : strategies) {
    v1::Strategy* strategy = job.add_strategies();
    for (const v1::Mesh& mesh : meshes) *strategy->add_meshes()->mutable_mesh() = mesh;
  }
  return job;
}

TEST(ValidationPlanTest, IsRefusedWhereAllMeshesAreSideBySide) {
  const v1::JobSpec job = JobOfStrategies({{MakeMesh(2, 1, 1, 1), MakeMesh(1, 2, 1, 1)}});
  const v1::Batch batch = WithValidation(EqualSamples(8), EqualSamples(4));
  EXPECT_THAT(std::string(PlanOf(job, batch).status().message()),
              HasSubstr("batch.validation: validation is not planned on 2 meshes side by side"));
}

TEST(ValidationPlanTest, RunsOnAnotherStrategyWhereTheTrainingsCannot) {
  const v1::JobSpec job =
      JobOfStrategies({{MakeMesh(2, 1, 1, 1), MakeMesh(1, 2, 1, 1)}, {MakeMesh(4, 1, 1, 1)}});
  const v1::Batch batch = WithValidation(EqualSamples(8), EqualSamples(4));
  const absl::StatusOr<v1::Plan> plan = PlanOf(job, batch);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->validation().strategy(), 1);
  EXPECT_EQ(Text(CheckPlan(batch, *plan)), "");
}

class DamagedValidationTest : public ::testing::Test {
 protected:
  DamagedValidationTest() : batch_(WithValidation(EqualSamples(8), EqualSamples(4))) {
    absl::StatusOr<v1::Plan> plan = PlanOf(FourStages(), batch_);
    EXPECT_TRUE(plan.ok()) << plan.status();
    if (plan.ok()) plan_ = *std::move(plan);
  }

  // Messages, with the hashes of the damaged plan.
  std::string Found(const std::function<void(v1::Batch&, v1::Plan&)>& damage) const {
    v1::Batch batch = batch_;
    v1::Plan plan = plan_;
    damage(batch, plan);
    if (plan.has_validation())
      plan.mutable_validation()->set_content_hash(Planner::ContentHash(plan.validation()));
    plan.set_content_hash(Planner::ContentHash(plan));
    std::string all;
    for (const Violation& violation : CheckPlan(batch, plan)) absl::StrAppend(&all, violation.message, "\n");
    return all;
  }

  static v1::Instruction& FirstOf(v1::Op op, v1::Plan& plan) {
    auto& instructions = *plan.mutable_programs(1)->mutable_instructions();
    return *std::ranges::find_if(instructions, [op](const v1::Instruction& one) { return one.op() == op; });
  }

  v1::Batch batch_;
  v1::Plan plan_;
};

TEST_F(DamagedValidationTest, IsValidWithoutDamage) {
  EXPECT_EQ(Found([](v1::Batch&, v1::Plan&) {}), "");
}

TEST_F(DamagedValidationTest, ABackwardPassIsFound) {
  EXPECT_THAT(Found([](v1::Batch&, v1::Plan& plan) {
                FirstOf(v1::OP_FORWARD, *plan.mutable_validation()).set_op(v1::OP_BACKWARD);
              }),
              HasSubstr("a plan that is forward_only learns nothing"));
}

TEST_F(DamagedValidationTest, ATrainingPlanWithoutBackwardPassesIsFound) {
  EXPECT_THAT(Found([](v1::Batch& batch, v1::Plan& plan) {
                const v1::Batch samples = batch.validation();
                const v1::Plan forward = plan.validation();
                batch = samples;
                plan = forward;
              }),
              HasSubstr("forward_only is set, which only a plan's `validation` may have"));
  EXPECT_THAT(Found([](v1::Batch& batch, v1::Plan& plan) {
                const v1::Batch samples = batch.validation();
                const v1::Plan forward = plan.validation();
                batch = samples;
                plan = forward;
                plan.clear_forward_only();
              }),
              HasSubstr("has neither BACKWARD nor both BACKWARD_INPUT and BACKWARD_WEIGHT"));
}

TEST_F(DamagedValidationTest, ATrainingPlanInItsPlaceIsFound) {
  EXPECT_THAT(Found([](v1::Batch& batch, v1::Plan& plan) {
                const v1::Plan training = plan;
                *plan.mutable_validation() = training;
                plan.mutable_validation()->clear_validation();
                batch.mutable_validation()->mutable_samples()->CopyFrom(batch.samples());
              }),
              HasSubstr("validation.forward_only is not set"));
}

TEST_F(DamagedValidationTest, OneThatIsMissingOrTooManyIsFound) {
  EXPECT_THAT(Found([](v1::Batch&, v1::Plan& plan) { plan.clear_validation(); }),
              HasSubstr("the batch has a validation, the plan none"));
  EXPECT_THAT(Found([](v1::Batch& batch, v1::Plan&) { batch.clear_validation(); }),
              HasSubstr("the batch has no validation, the plan one"));
}

TEST_F(DamagedValidationTest, OneOfAnotherIterationOrModelIsFound) {
  EXPECT_THAT(Found([](v1::Batch&, v1::Plan& plan) { plan.mutable_validation()->set_iteration(9); }),
              HasSubstr("validation.iteration is 9"));
  EXPECT_THAT(
      Found([](v1::Batch&, v1::Plan& plan) { plan.mutable_validation()->mutable_model()->set_vocab(7); }),
      HasSubstr("validation.model is not that of the plan"));
}

TEST_F(DamagedValidationTest, RecomputeAndAScheduleAreFound) {
  EXPECT_THAT(Found([](v1::Batch&, v1::Plan& plan) {
                plan.mutable_validation()
                    ->mutable_replicas(0)
                    ->mutable_micro_batches(0)
                    ->mutable_recompute(0)
                    ->set_full_layers(1);
              }),
              HasSubstr("recomputes layers"));
  EXPECT_THAT(Found([](v1::Batch&, v1::Plan& plan) {
                plan.mutable_validation()->set_schedule(v1::SCHEDULE_READY_FIRST);
              }),
              HasSubstr("validation: schedule is set"));
}

TEST_F(DamagedValidationTest, WhatIsNeverGivenBackIsFound) {
  EXPECT_THAT(Found([](v1::Batch&, v1::Plan& plan) {
                v1::Instruction& forward = FirstOf(v1::OP_FORWARD, *plan.mutable_validation());
                forward.set_memory_released_bytes(forward.memory_released_bytes() - 1);
              }),
              HasSubstr("never gives back 1 bytes"));
}

}  // namespace
}  // namespace penstock::core
