#include "planner/service/state/summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "planner/service/engine/fake_batch_planner.h"
#include "planner/service/engine/program_message.h"
#include "tests/unit/service/requests.h"

namespace penstock {
namespace {

// Two replicas of two stages; each rank computes 3 x 1 ms of a makespan of 6 ms.
v1::Plan MakePlan() {
  return *FakeBatchPlanner(MakeJob("job", 2, 2), nullptr).MakePlan(MakeBatch(7), core::StopToken());
}

v1::IterationSummary SummaryOf(const v1::Plan& plan, const std::vector<v1::ReportIterationRequest>& reports,
                               double waiting_share = 0) {
  std::vector<store::v1::IterationReported> figures;
  const PackedPlan packed(plan);
  for (const v1::ReportIterationRequest& report : reports) {
    figures.push_back(FiguresOf(*packed.Ops(static_cast<int>(report.rank())), report));
  }
  return Summarize(FiguresOf(plan, waiting_share), figures);
}

TEST(SummaryTest, SumsUpWhatTheRanksReported) {
  std::vector<v1::ReportIterationRequest> reports;
  for (uint32_t rank = 0; rank < 4; ++rank) reports.push_back(MakeReport(rank, 7));
  reports[1].set_duration_ns(5'000'000);
  reports[2].set_waited_for_program_ns(70);
  for (auto& report : reports) report.set_gradient_norm(2.5);
  reports[0].set_learning_rate(1e-4);

  const v1::IterationSummary summary = SummaryOf(MakePlan(), reports);

  EXPECT_EQ(summary.iteration(), 7);
  EXPECT_DOUBLE_EQ(summary.loss(), 4 * 1.5);
  EXPECT_DOUBLE_EQ(summary.gradient_norm(), 2.5);
  EXPECT_DOUBLE_EQ(summary.learning_rate(), 1e-4);
  EXPECT_EQ(summary.measured_ns(), 5'000'000);
  EXPECT_EQ(summary.predicted_ns(), 6'000'000);
  EXPECT_EQ(summary.waited_for_program_ns(), 70);
  EXPECT_EQ(summary.micro_batches(), 2);
  EXPECT_EQ(summary.real_tokens(), 100);
  EXPECT_EQ(summary.computed_tokens(), 125);
  // 4 ranks x 3 ms of computation in 4 x 5 ms measured, 4 x 6 ms predicted.
  EXPECT_DOUBLE_EQ(summary.bubble(), 1 - 12.0 / 20.0);
  EXPECT_DOUBLE_EQ(summary.predicted_bubble(), 0.5);
}

TEST(SummaryTest, UnderNoiseWhatIsExpectedIsWhatWasForetold) {
  v1::Plan plan = MakePlan();
  plan.mutable_predicted()->set_expected_ns(8'000'000);
  const v1::IterationSummary summary = SummaryOf(plan, {MakeReport(0, 7)});
  EXPECT_EQ(summary.predicted_ns(), 8'000'000);
  EXPECT_DOUBLE_EQ(summary.predicted_bubble(), 1 - 12.0 / 32.0);
}

TEST(SummaryTest, WaitingThatFitsPutOnComputingIsBubbleThatWasForetold) {
  const v1::IterationSummary summary = SummaryOf(MakePlan(), {MakeReport(0, 7)}, /*waiting_share=*/0.25);
  EXPECT_EQ(summary.predicted_ns(), 6'000'000);
  EXPECT_DOUBLE_EQ(summary.predicted_bubble(), 1 - 0.75 * 12.0 / 24.0);
}

TEST(SummaryTest, SquaresOfPartsAddUpOverTheRanks) {
  std::vector<v1::ReportIterationRequest> reports;
  for (uint32_t rank = 0; rank < 4; ++rank) reports.push_back(MakeReport(rank, 7));
  const auto add = [&](uint32_t rank, v1::ModelPart part, double norm) {
    v1::PartNorm* const added = reports[rank].add_part_norms();
    added->set_part(part);
    added->set_norm(norm);
  };
  add(0, v1::MODEL_PART_EMBEDDING, 2);
  add(0, v1::MODEL_PART_ATTENTION, 3);
  add(1, v1::MODEL_PART_ATTENTION, 4);
  add(3, v1::MODEL_PART_HEAD, 0);
  const v1::IterationSummary summary = SummaryOf(MakePlan(), reports);
  ASSERT_EQ(summary.part_norms_size(), 3);
  EXPECT_EQ(summary.part_norms(0).part(), v1::MODEL_PART_EMBEDDING);
  EXPECT_DOUBLE_EQ(summary.part_norms(0).norm(), 2);
  EXPECT_EQ(summary.part_norms(1).part(), v1::MODEL_PART_ATTENTION);
  EXPECT_DOUBLE_EQ(summary.part_norms(1).norm(), 5);
  EXPECT_EQ(summary.part_norms(2).part(), v1::MODEL_PART_HEAD);
  EXPECT_DOUBLE_EQ(summary.part_norms(2).norm(), 0);
}

TEST(SummaryTest, LossesOfTasksAreMeansByWeight) {
  std::vector<v1::ReportIterationRequest> reports;
  for (uint32_t rank = 0; rank < 4; ++rank) reports.push_back(MakeReport(rank, 7));
  const auto add = [&](uint32_t rank, uint32_t task, double loss, double weight) {
    v1::TaskLoss* const added = reports[rank].add_tasks();
    added->set_task(task);
    added->set_loss(loss);
    added->set_weight(weight);
  };
  add(1, 0, 6, 2);
  add(1, 2, 0, 0);
  add(3, 0, 3, 1);
  add(3, 1, 5, 10);
  const v1::IterationSummary summary = SummaryOf(MakePlan(), reports);
  ASSERT_EQ(summary.tasks_size(), 3);
  EXPECT_EQ(summary.tasks(0).task(), 0u);
  EXPECT_DOUBLE_EQ(summary.tasks(0).loss(), 3);
  EXPECT_DOUBLE_EQ(summary.tasks(0).weight(), 3);
  EXPECT_DOUBLE_EQ(summary.tasks(1).loss(), 0.5);
  EXPECT_EQ(summary.tasks(2).task(), 2u);
  EXPECT_DOUBLE_EQ(summary.tasks(2).loss(), 0);
}

TEST(SummaryTest, DroppedRowsAddUpOverTheRanks) {
  std::vector<v1::ReportIterationRequest> reports;
  for (uint32_t rank = 0; rank < 4; ++rank) {
    reports.push_back(MakeReport(rank, 7));
    reports.back().set_routed_expert_rows(100);
    reports.back().set_dropped_expert_rows(rank);
  }
  const v1::IterationSummary summary = SummaryOf(MakePlan(), reports);
  EXPECT_EQ(summary.routed_expert_rows(), 400);
  EXPECT_EQ(summary.dropped_expert_rows(), 6);
}

TEST(SummaryTest, LossesOfRoutersAddUpOverTheRanksBesideTheLoss) {
  std::vector<v1::ReportIterationRequest> reports;
  for (uint32_t rank = 0; rank < 4; ++rank) {
    reports.push_back(MakeReport(rank, 7));
    reports.back().set_router_balance_loss(0.25);
    reports.back().set_router_z_loss(rank);
  }
  const v1::IterationSummary summary = SummaryOf(MakePlan(), reports);
  EXPECT_DOUBLE_EQ(summary.loss(), 4 * 1.5);
  EXPECT_DOUBLE_EQ(summary.router_balance_loss(), 1);
  EXPECT_DOUBLE_EQ(summary.router_z_loss(), 6);
}

v1::Batch MakeValidatedBatch() {
  v1::Batch batch = MakeBatch(7);
  *batch.mutable_validation() = MakeBatch(7);
  return batch;
}

v1::Plan MakeValidatedPlan() {
  return *FakeBatchPlanner(MakeJob("job", 2, 2), nullptr).MakePlan(MakeValidatedBatch(), core::StopToken());
}

TEST(SummaryTest, AValidationAddsUpApartAndChangesNothingElse) {
  std::vector<v1::ReportIterationRequest> reports;
  for (uint32_t rank = 0; rank < 4; ++rank) reports.push_back(MakeReport(rank, 7));
  const v1::IterationSummary without = SummaryOf(MakePlan(), reports);
  for (uint32_t rank = 0; rank < 4; ++rank) {
    v1::ValidationReport* const validation = reports[rank].mutable_validation();
    validation->set_duration_ns(1'000'000 * (rank + 1));
    validation->set_loss(0.5);
    validation->add_instructions()->set_duration_ns(9'000'000);
    v1::TaskLoss* const task = validation->add_tasks();
    task->set_loss(rank);
    task->set_weight(2);
  }
  v1::IterationSummary with = SummaryOf(MakeValidatedPlan(), reports);
  EXPECT_DOUBLE_EQ(with.validation().loss(), 2);
  EXPECT_EQ(with.validation().measured_ns(), 4'000'000);
  EXPECT_EQ(with.validation().predicted_ns(), 2'000'000);
  EXPECT_EQ(with.validation().micro_batches(), 2);
  EXPECT_EQ(with.validation().samples(), static_cast<uint64_t>(MakeBatch(7).samples_size()));
  EXPECT_EQ(with.validation().loss_tokens(), 99);
  ASSERT_EQ(with.validation().tasks_size(), 1);
  EXPECT_DOUBLE_EQ(with.validation().tasks(0).loss(), 6.0 / 8.0);
  with.clear_validation();
  EXPECT_EQ(with.SerializeAsString(), without.SerializeAsString());
}

TEST(ProgramMessageTest, HoldsTheRanksProgramOfAValidation) {
  v1::Batch batch = MakeValidatedBatch();
  batch.mutable_validation()->mutable_samples(1)->set_sample_id(77);
  const v1::Plan plan = MakeValidatedPlan();
  const v1::StreamProgramsResponse message = MakeProgramMessage(batch, plan, 2, {});
  ASSERT_TRUE(message.has_validation());
  EXPECT_EQ(message.validation().program().rank(), 2);
  EXPECT_EQ(message.validation().program().instructions_size(), 1);
  EXPECT_EQ(message.validation().samples(0).sample_id(), 77u);
  EXPECT_EQ(message.program().instructions_size(), 3);
  EXPECT_FALSE(MakeProgramMessage(MakeBatch(7), MakePlan(), 2, {}).has_validation());
}

TEST(SummaryTest, ProgramsOfABatchThatWeighsNothingHaveNoLossTokens) {
  v1::Batch batch = MakeBatch(7);
  v1::Plan plan = MakePlan();
  plan.set_loss_tokens(40);
  EXPECT_EQ(MakeProgramMessage(batch, plan, 0, {}).loss_tokens(), 40u);
  batch.mutable_samples(1)->set_loss_weight(0);
  EXPECT_EQ(MakeProgramMessage(batch, plan, 0, {}).loss_tokens(), 0u);
  plan.set_loss_weight(2.5);
  EXPECT_EQ(MakeProgramMessage(batch, plan, 0, {}).loss_tokens(), 40u);
  EXPECT_EQ(MakeProgramMessage(batch, plan, 0, {}).loss_weight(), 2.5);
}

TEST(SummaryTest, TransfersAndWaitsAreBubble) {
  v1::Plan plan = MakePlan();
  plan.mutable_programs(0)->mutable_instructions(1)->set_op(v1::OP_WAIT);
  std::vector<v1::ReportIterationRequest> reports;
  for (uint32_t rank = 0; rank < 4; ++rank) reports.push_back(MakeReport(rank, 7));
  const v1::IterationSummary summary = SummaryOf(plan, reports);
  EXPECT_DOUBLE_EQ(summary.bubble(), 1 - 11.0 / 16.0);
  EXPECT_DOUBLE_EQ(summary.predicted_bubble(), 1 - 11.0 / 24.0);
}

// Rank 2 is the last to come; the others wait for it in their optimizer steps.
TEST(SummaryTest, WhatRanksWaitInOptimizerStepsIsBubble) {
  std::vector<v1::ReportIterationRequest> reports;
  for (uint32_t rank = 0; rank < 4; ++rank) {
    v1::ReportIterationRequest& report = reports.emplace_back(MakeReport(rank, 7));
    ASSERT_EQ(MakePlan().programs(0).instructions(2).op(), v1::OP_OPTIMIZER_STEP);
    if (rank != 2) report.mutable_instructions(2)->set_duration_ns(1'500'000);
  }
  EXPECT_DOUBLE_EQ(SummaryOf(MakePlan(), reports).bubble(), 1 - 12.0 / 16.0);
}

TEST(SummaryTest, TimesBeyondAllReasonDoNotOverflow) {
  constexpr int64_t kForever = std::numeric_limits<int64_t>::max();
  std::vector<v1::ReportIterationRequest> reports;
  for (uint32_t rank = 0; rank < 4; ++rank) {
    v1::ReportIterationRequest& report = reports.emplace_back(MakeReport(rank, 7));
    report.set_duration_ns(kForever);
    for (auto& instruction : *report.mutable_instructions()) instruction.set_duration_ns(kForever);
  }
  EXPECT_DOUBLE_EQ(SummaryOf(MakePlan(), reports).bubble(), 1 - 3);
}

TEST(SummaryTest, ARankThatMeasuredNothingGivesNoBubble) {
  std::vector<v1::ReportIterationRequest> reports(4);
  EXPECT_DOUBLE_EQ(SummaryOf(MakePlan(), reports).bubble(), 0);
}

TEST(ProgramMessageTest, HoldsAllThatARankNeedsAndNothingOfTheOtherReplicas) {
  v1::Plan plan = MakePlan();
  plan.add_groups()->add_ranks(3);
  v1::CollectiveGroup* own = plan.add_groups();
  own->add_ranks(2);
  own->add_ranks(3);
  plan.add_layers_per_stage(12);
  v1::MicroBatch* micro_batch = plan.mutable_replicas(1)->mutable_micro_batches(0);
  micro_batch->clear_samples();
  micro_batch->add_samples(3);
  micro_batch->add_samples(1);
  const v1::Batch batch = MakeBatch(7);

  const v1::StreamProgramsResponse message = MakeProgramMessage(batch, plan, 2);

  EXPECT_EQ(message.iteration(), 7);
  EXPECT_EQ(message.plan_version(), 1);
  EXPECT_EQ(message.content_hash(), plan.content_hash());
  EXPECT_EQ(message.program().rank(), 2);
  EXPECT_EQ(message.program().instructions_size(), 3);
  ASSERT_EQ(message.micro_batches_size(), 1);
  EXPECT_THAT(message.micro_batches(0).samples(), testing::ElementsAre(0, 1));
  ASSERT_EQ(message.samples_size(), 2);
  EXPECT_EQ(message.samples(0).sample_id(), batch.samples(3).sample_id());
  EXPECT_EQ(message.samples(1).sample_id(), batch.samples(1).sample_id());
  EXPECT_EQ(message.loss_tokens(), 99);
  EXPECT_EQ(message.real_tokens(), 100);
  ASSERT_EQ(message.groups_size(), 2);
  EXPECT_THAT(message.groups(0).ranks(), testing::IsEmpty());
  EXPECT_THAT(message.groups(1).ranks(), testing::ElementsAre(2, 3));
  EXPECT_EQ(message.layers_per_stage(0), 12);
  EXPECT_THAT(message.profile_duration_ns(), testing::IsEmpty());
  EXPECT_THAT(MakeProgramMessage(batch, plan, 2, {5, 6, 7}).profile_duration_ns(),
              testing::ElementsAre(5, 6, 7));
}

}  // namespace
}  // namespace penstock
