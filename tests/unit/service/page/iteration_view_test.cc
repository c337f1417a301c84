#include "planner/service/page/iteration_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMicrosecond = 1000;

v1::Instruction* Add(v1::Program& program, v1::Op op, int64_t start_us, int64_t duration_us) {
  v1::Instruction* instruction = program.add_instructions();
  instruction->set_id(static_cast<uint32_t>(program.instructions_size() - 1));
  instruction->set_op(op);
  instruction->set_micro_batch(5);
  instruction->set_stage(1);
  instruction->set_expected_start_ns(start_us * kMicrosecond);
  instruction->set_expected_duration_ns(duration_us * kMicrosecond);
  return instruction;
}

// Each rank: LOAD, FORWARD at 10 us, BACKWARD at 30 us, OPTIMIZER_STEP at 60 us; a rank a replica.
v1::Plan MakePlan(uint32_t replicas) {
  v1::Plan plan;
  plan.set_job_id("job");
  plan.set_iteration(7);
  plan.mutable_predicted()->set_makespan_ns(70 * kMicrosecond);
  for (uint32_t replica = 0; replica < replicas; ++replica) {
    v1::MicroBatch* micro_batch = plan.add_replicas()->add_micro_batches();
    micro_batch->add_samples(replica);
    micro_batch->set_real_tokens(100 + replica);
    micro_batch->set_computed_tokens(128);
    v1::Program& program = *plan.add_programs();
    program.set_rank(replica);
    program.set_replica(replica);
    program.add_stages(1);
    Add(program, v1::OP_LOAD, 0, 1);
    Add(program, v1::OP_FORWARD, 10, 10);
    Add(program, v1::OP_BACKWARD, 30, 20);
    Add(program, v1::OP_OPTIMIZER_STEP, 60, 10);
  }
  return plan;
}

// Two groups of two tensor ranks; the first is ranks 3 and 1, the second 0 and 2.
v1::Plan PlanWithGroups() {
  v1::Plan plan = MakePlan(4);
  plan.mutable_mesh()->set_pipeline(2);
  plan.mutable_mesh()->set_data(1);
  plan.mutable_mesh()->set_tensor(2);
  v1::ReplicaTopology& replica = *plan.mutable_topology()->add_replicas();
  const uint32_t groups[2][2] = {{3, 1}, {0, 2}};
  for (uint32_t stage = 0; stage < 2; ++stage) {
    v1::StageTopology& group = *replica.add_stages();
    for (const uint32_t rank : groups[stage]) {
      group.add_ranks(rank);
      plan.mutable_programs(static_cast<int>(rank))->set_replica(0);
      plan.mutable_programs(static_cast<int>(rank))->set_stages(0, stage);
    }
  }
  return plan;
}

// Everything takes twice the plan's time, from `start_us` of the wall clock on.
ReportPtr ReportOf(const v1::Program& program, int64_t start_us) {
  auto report = std::make_shared<v1::ReportIterationRequest>();
  report->set_rank(program.rank());
  report->set_started_unix_ns(start_us * kMicrosecond);
  report->set_duration_ns(140 * kMicrosecond);
  for (const v1::Instruction& instruction : program.instructions()) {
    v1::MeasuredInstruction* measured = report->add_instructions();
    measured->set_id(instruction.id());
    measured->set_start_ns(2 * instruction.expected_start_ns());
    measured->set_duration_ns(2 * instruction.expected_duration_ns());
  }
  return report;
}

HeldIteration Held(const v1::Plan& plan, std::vector<ReportPtr> reports = {}) {
  return {.batch = std::make_shared<v1::Batch>(),
          .plan = std::make_shared<PackedPlan>(plan),
          .reports = std::move(reports)};
}

Json ViewOf(const HeldIteration& held, const IterationViewOptions& options) {
  return IterationAsJson(held, held.plan->Plan().value(), options);
}

TEST(IterationViewTest, BlocksAreWhatARankComputesInMicroseconds) {
  const Json view = ViewOf(Held(MakePlan(1)), {});
  EXPECT_EQ(view["iteration"], 7);
  EXPECT_EQ(view["planned_us"], 70);
  EXPECT_EQ(view["measured_us"], nullptr);
  const Json& rank = view["ranks"][0];
  EXPECT_EQ(rank["blocks"], (Json{2, 5, 1, 10, 10, 3, 5, 1, 30, 20, 9, 5, 1, 60, 10}));
  EXPECT_FALSE(rank.contains("measured")) << "nobody has reported";
  EXPECT_EQ(view["ops"]["2"], "FORWARD");
  EXPECT_FALSE(view["ops"].contains("1")) << "LOAD is no block";
}

TEST(IterationViewTest, MeasuredTimesStandBesideThePlansAndBeginWithTheFirstRank) {
  const v1::Plan plan = MakePlan(2);
  const Json view =
      ViewOf(Held(plan, {ReportOf(plan.programs(0), 1000), ReportOf(plan.programs(1), 1003)}), {});
  EXPECT_EQ(view["ranks"][0]["measured"], (Json{20, 20, 60, 40, 120, 20}));
  EXPECT_EQ(view["ranks"][1]["measured"], (Json{23, 20, 63, 40, 123, 20}));
  EXPECT_EQ(view["measured_us"], 143);
  EXPECT_EQ(view["ranks_reported"], 2);
}

TEST(IterationViewTest, WhatWasNotMeasuredIsMarked) {
  const v1::Plan plan = MakePlan(1);
  v1::ReportIterationRequest report = *ReportOf(plan.programs(0), 0);
  report.mutable_instructions()->DeleteSubrange(2, 2);
  // Of an instruction that the plan does not have.
  report.add_instructions()->set_id(4'000'000'000);
  const Json view = ViewOf(Held(plan, {std::make_shared<v1::ReportIterationRequest>(report)}), {});
  EXPECT_EQ(view["ranks"][0]["measured"], (Json{20, 20, -1, -1, -1, -1}));
}

TEST(IterationViewTest, ReplicasHaveTheirLoadAndTheirLastBackward) {
  const v1::Plan plan = MakePlan(2);
  const Json view = ViewOf(Held(plan, {ReportOf(plan.programs(1), 0)}), {});
  EXPECT_EQ(view["replicas"][0]["real_tokens"], 100);
  EXPECT_EQ(view["replicas"][0]["samples"], 1);
  EXPECT_EQ(view["replicas"][0]["planned_us"], 50);
  EXPECT_EQ(view["replicas"][0]["measured_us"], nullptr);
  EXPECT_EQ(view["replicas"][1]["measured_us"], 100);
}

TEST(IterationViewTest, RanksOfAStageGroupStandTogetherWithTheirPlaces) {
  const Json view = ViewOf(Held(PlanWithGroups()), {});
  ASSERT_EQ(view["ranks"].size(), 4);
  const std::pair<int, std::string> expected[] = {{3, "t0"}, {1, "t1"}, {0, "t0"}, {2, "t1"}};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(view["ranks"][i]["rank"], expected[i].first);
    EXPECT_EQ(view["ranks"][i]["place"], expected[i].second);
  }
  EXPECT_FALSE(ViewOf(Held(MakePlan(1)), {})["ranks"][0].contains("place"));
}

TEST(IterationViewTest, AReplicaAloneIsShownWhenItIsAskedFor) {
  const Json view = ViewOf(Held(MakePlan(3)), {.replica = 1});
  ASSERT_EQ(view["ranks"].size(), 1);
  EXPECT_EQ(view["ranks"][0]["rank"], 1);
  EXPECT_EQ(view["ranks_left_out"], 0);
  EXPECT_EQ(view["replicas"].size(), 3) << "imbalance is about all of them";
  EXPECT_EQ(ViewOf(Held(MakePlan(3)), {.replica = 9})["ranks"], Json::array());
}

TEST(IterationViewTest, RanksBeyondTheLimitAreLeftOutAndCounted) {
  const Json view = ViewOf(Held(MakePlan(5)), {.most_blocks = 7});
  EXPECT_EQ(view["ranks"].size(), 2);
  EXPECT_EQ(view["ranks_left_out"], 3);
  EXPECT_EQ(ViewOf(Held(MakePlan(5)), {.most_blocks = 0})["ranks"].size(), 1);
}

}  // namespace
}  // namespace penstock
