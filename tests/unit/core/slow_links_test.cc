// Links that are slower than others of their kind: what transfers and rings over them take, and what plans
// make of it.
#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "planner/core/audit/audit_plan.h"
#include "planner/core/planner.h"
#include "planner/core/verify/check_plan.h"
#include "tests/unit/core/job_builder.h"

namespace penstock::core {
namespace {

void AddLink(uint32_t from, uint32_t to, double factor, v1::JobSpec* job) {
  v1::SlowLink* const slow = job->mutable_profile()->add_slow_links();
  slow->set_from(from);
  slow->set_to(to);
  slow->set_factor(factor);
}

v1::Batch SomeBatch() {
  std::vector<std::pair<uint32_t, uint32_t>> lengths;
  for (uint32_t i = 0; i < 32; ++i) lengths.emplace_back(i % 9, 5 + (i * 31) % 70);
  return MakeBatch(lengths);
}

TEST(SlowLinksTest, TransfersAndRingsOverThemTakeSoManyTimesAsLongEachWayForItself) {
  v1::JobSpec job = GptJob(2, 2, v1::POLICY_DYNAMIC);
  const CostModel usual = ModelOf(job);
  AddLink(0, 1, 20, &job);
  AddLink(2, 0, 3, &job);
  const CostModel slow = ModelOf(job);
  EXPECT_EQ(slow.TransferNs(1000, 0, 1), 20 * usual.TransferNs(1000, 0, 1));
  EXPECT_EQ(slow.TransferNs(1000, 1, 0), usual.TransferNs(1000, 1, 0));
  // The ring of gradients of the first stage, ranks 0 and 2, is as slow as its slowest link.
  EXPECT_NEAR(static_cast<double>(slow.ReduceNs(0, 0)), 3.0 * static_cast<double>(usual.ReduceNs(0, 0)), 10);
  EXPECT_EQ(slow.ReduceNs(1, 0), usual.ReduceNs(1, 0));
}

// Of every schedule, of several stages a rank, and of stage groups.
TEST(SlowLinksTest, PlansSayWhatTransfersOverThemTakeAndPassTheCheckerAndTheAudit) {
  std::vector<v1::JobSpec> jobs;
  for (const v1::Schedule schedule :
       {v1::SCHEDULE_AUTO, v1::SCHEDULE_ONE_FORWARD_ONE_BACKWARD, v1::SCHEDULE_SPLIT_BACKWARD}) {
    jobs.push_back(GptJob(4, 2, v1::POLICY_DYNAMIC));
    jobs.back().mutable_planning()->set_schedule(schedule);
  }
  jobs.push_back(GptJob(2, 2, v1::POLICY_DYNAMIC));
  for (const uint32_t layers : {2, 2, 2, 2}) jobs.back().mutable_planning()->add_layers_per_stage(layers);
  for (const uint32_t rank : {0, 1, 0, 1}) jobs.back().mutable_planning()->add_rank_of_stage(rank);
  jobs.push_back(GptJob(2, 2, v1::POLICY_PACKED));
  jobs.back().mutable_mesh()->set_context(2);
  for (size_t i = 0; i < jobs.size(); ++i) {
    v1::JobSpec& job = jobs[i];
    AddLink(0, 1, 20, &job);
    AddLink(1, 0, 2.5, &job);
    AddLink(1, 3, 4, &job);
    const auto planner = Planner::Create(job);
    ASSERT_TRUE(planner.ok()) << i << planner.status();
    const v1::Batch batch = SomeBatch();
    const auto plan = (*planner)->MakePlan(batch);
    ASSERT_TRUE(plan.ok()) << i << plan.status();
    EXPECT_TRUE(CheckPlan(batch, *plan).empty()) << i;
    const auto violations = AuditPlan(batch, *plan, job.profile());
    ASSERT_TRUE(violations.ok()) << i << violations.status();
    EXPECT_TRUE(violations->empty()) << i;
    for (const v1::Program& program : plan->programs()) {
      for (const v1::Instruction& instruction : program.instructions()) {
        if (!instruction.has_transfer()) continue;
        const auto rank = static_cast<int>(program.rank());
        const auto peer = static_cast<int>(instruction.transfer().peer());
        const bool sends = instruction.op() == v1::OP_SEND;
        EXPECT_EQ(instruction.expected_duration_ns(),
                  (*planner)->costs().TransferNs(static_cast<int64_t>(instruction.transfer().bytes()),
                                                 sends ? rank : peer, sends ? peer : rank))
            << i;
      }
    }
  }
}

TEST(SlowLinksTest, APlanThatKnowsNothingOfThemFailsTheAudit) {
  v1::JobSpec job = GptJob(2, 2, v1::POLICY_DYNAMIC);
  const v1::Batch batch = SomeBatch();
  const auto plan = (*Planner::Create(job))->MakePlan(batch);
  ASSERT_TRUE(plan.ok()) << plan.status();
  AddLink(2, 3, 1.5, &job);
  const auto violations = AuditPlan(batch, *plan, job.profile());
  ASSERT_TRUE(violations.ok()) << violations.status();
  EXPECT_FALSE(violations->empty());
}

TEST(SlowLinksTest, TheReplicaWhosePipelineIsHeldUpByOneGetsLessToDo) {
  v1::JobSpec job = GptJob(2, 2, v1::POLICY_DYNAMIC);
  job.mutable_profile()->mutable_cluster()->set_intra_node_bytes_per_second(2e8);
  AddLink(0, 1, 20, &job);
  AddLink(1, 0, 20, &job);
  const auto plan = (*Planner::Create(job))->MakePlan(SomeBatch());
  ASSERT_TRUE(plan.ok()) << plan.status();
  std::vector<int> samples;
  for (const v1::Replica& replica : plan->replicas()) {
    samples.push_back(0);
    for (const v1::MicroBatch& micro_batch : replica.micro_batches())
      samples.back() += micro_batch.samples_size();
  }
  EXPECT_LT(samples[0], samples[1]);
}

}  // namespace
}  // namespace penstock::core
