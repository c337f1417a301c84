// What passes hide of REDUCE_GRADIENTS: the formula against buckets one by one, and plans that have it.
#include "planner/core/cost/reduce_time.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "planner/core/audit/audit_plan.h"
#include "planner/core/strategies/strategy_planner.h"
#include "planner/core/verify/check_plan.h"
#include "tests/unit/core/job_builder.h"
#include "tests/unit/core/random_job.h"
#include "tests/unit/core/sound_plan.h"

namespace penstock::core {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Bucket after bucket: each begins when the pass has made it and the one above it has been summed.
double LeftOfBuckets(int64_t buckets, double bucket_ns, double pass_ns) {
  double end = 0;
  for (int64_t i = 1; i <= buckets; ++i)
    end = std::max(end, pass_ns * static_cast<double>(i) / static_cast<double>(buckets)) + bucket_ns;
  return end - pass_ns;
}

TEST(ReduceTimeTest, IsWhatBucketsLeaveBehindThePass) {
  Random random(3);
  for (int i = 0; i < 1000; ++i) {
    const ReduceTime time = {
        .bucket_ns = random.Range(0, 2000), .buckets = random.Range(1, 40), .overlap = 1};
    const int64_t pass_ns = random.Range(0, 50'000);
    EXPECT_NEAR(
        static_cast<double>(time.LeftNs(pass_ns)),
        LeftOfBuckets(time.buckets, static_cast<double>(time.bucket_ns), static_cast<double>(pass_ns)), 1);
    EXPECT_LE(time.LeastLeftNs(), time.LeftNs(pass_ns));
    EXPECT_LE(time.LeftNs(pass_ns), time.WholeNs());
  }
}

TEST(ReduceTimeTest, IsAllOfItWhereNothingCanBeHidden) {
  const ReduceTime none = {.bucket_ns = 100, .buckets = 5, .overlap = 0};
  EXPECT_EQ(none.LeftNs(10'000), 500);
  const ReduceTime one = {.bucket_ns = 100, .buckets = 1, .overlap = 1};
  EXPECT_EQ(one.LeastLeftNs(), 100);
  const ReduceTime half = {.bucket_ns = 100, .buckets = 5, .overlap = 0.5};
  EXPECT_EQ(half.LeftNs(10'000), 300);
  EXPECT_EQ(half.LeftNs(0), 500);
  EXPECT_EQ(half.LeftNs(ReduceTime::kNoPass), 500) << "no rank has a pass that it could run beside";
  EXPECT_EQ(half.LeastLeftNs(), 300);
}

TEST(LastPassesTest, HideNothingBehindTheReductionOfAnotherStage) {
  LastPasses passes;
  passes.AddPass(1, 70);
  passes.AddPass(0, 20);
  passes.AddPass(1, 30);
  EXPECT_EQ(passes.TakeReduce(1), 30);
  EXPECT_EQ(passes.TakeReduce(0), 0) << "its last pass is above the reduction of stage 1";
  passes.AddPass(0, 50);
  EXPECT_EQ(passes.TakeReduce(0), 50);
  EXPECT_EQ(passes.TakeReduce(2), ReduceTime::kNoPass);
}

// Eight layers of 8e6 bytes in float32; an exchange goes on beside all that ranks compute.
v1::JobSpec JobWithBuckets(uint32_t pipeline, uint32_t data, uint64_t bucket_bytes) {
  v1::JobSpec job = GptJob(pipeline, data, v1::POLICY_PACKED);
  v1::PlanningOptions& planning = *job.mutable_planning();
  planning.set_schedule(v1::SCHEDULE_READY_FIRST);
  planning.set_gradient_bucket_bytes(bucket_bytes);
  job.mutable_profile()->mutable_layers(0)->set_parameter_bytes(8e6);
  v1::Cluster* cluster = job.mutable_profile()->mutable_cluster();
  cluster->set_exchange_overlap(1);
  cluster->set_intra_node_bytes_per_second(1e12);
  return job;
}

const v1::Instruction& LastInstruction(const v1::Plan& plan, int rank, v1::Op op) {
  const v1::Instruction* last = nullptr;
  for (const v1::Instruction& instruction : plan.programs(rank).instructions())
    if (instruction.op() == op) last = &instruction;
  EXPECT_NE(last, nullptr);
  return *last;
}

// Of two replicas of one stage; in time behind long passes and behind short ones.
TEST(GradientBucketsTest, APlanHasWhatItsLastPassesLeave) {
  const v1::Batch batch = MakeBatch({{0, 3000}, {0, 3000}});
  const int64_t whole =
      LastInstruction(SoundPlanOf(JobWithBuckets(1, 2, 0), batch), 0, v1::OP_REDUCE_GRADIENTS)
          .expected_duration_ns();
  int64_t before = whole;
  // 8 layers: all of them; 4 each; 2 each; one each.
  for (const auto& [bytes, buckets] :
       {std::pair{uint64_t{1} << 40, 1}, {30'000'000, 2}, {12'000'000, 4}, {1, 8}}) {
    v1::JobSpec job = JobWithBuckets(1, 2, bytes);
    const v1::Plan plan = SoundPlanOf(job, batch);
    const int64_t left = LastInstruction(plan, 0, v1::OP_REDUCE_GRADIENTS).expected_duration_ns();
    // 100 ns of latency come with each step of each bucket.
    const double latencies = 2 * 100.0;
    EXPECT_NEAR(static_cast<double>(left), (static_cast<double>(whole) - latencies) / buckets + latencies, 3);
    EXPECT_LE(left, before);
    before = left;
    // A link that takes longer than the pass.
    job.mutable_profile()->mutable_cluster()->set_intra_node_bytes_per_second(1e9);
    const v1::Plan slow = SoundPlanOf(job, batch);
    const int64_t pass_ns = LastInstruction(slow, 0, v1::OP_BACKWARD).expected_duration_ns();
    const double all = (static_cast<double>(whole) - latencies) * 1000 + latencies * buckets;
    EXPECT_NEAR(static_cast<double>(LastInstruction(slow, 0, v1::OP_REDUCE_GRADIENTS).expected_duration_ns()),
                all - static_cast<double>(pass_ns) * (buckets - 1) / buckets, 1000);
  }
}

TEST(GradientBucketsTest, TheShortestLastPassOfAllReplicasCounts) {
  v1::JobSpec job = JobWithBuckets(1, 2, 1);
  job.mutable_profile()->mutable_cluster()->set_intra_node_bytes_per_second(1e8);
  const v1::Plan plan = SoundPlanOf(job, MakeBatch({{0, 4000}, {0, 100}}));
  const int64_t first = LastInstruction(plan, 0, v1::OP_BACKWARD).expected_duration_ns();
  const int64_t second = LastInstruction(plan, 1, v1::OP_BACKWARD).expected_duration_ns();
  ASSERT_NE(first, second);
  const auto costs = StrategyPlanner::Create(job, Planner::Explain::kCauseAlone);
  const ReduceTime time = (*costs)->planner(0).planner(0).costs().ReduceTimes(0, 0);
  EXPECT_EQ(LastInstruction(plan, 0, v1::OP_REDUCE_GRADIENTS).expected_duration_ns(),
            time.LeftNs(std::min(first, second)));
}

TEST(GradientBucketsTest, GatheringParametersHasTheirLatenciesToo) {
  const v1::Batch batch = MakeBatch({{0, 3000}, {0, 3000}});
  v1::JobSpec one = JobWithBuckets(1, 2, uint64_t{1} << 40), eight = JobWithBuckets(1, 2, 1);
  for (v1::JobSpec* job : {&one, &eight}) job->mutable_planning()->set_shard_optimizer_state(true);
  const auto step_ns = [&](const v1::JobSpec& job) {
    return static_cast<double>(
        LastInstruction(SoundPlanOf(job, batch), 0, v1::OP_OPTIMIZER_STEP).expected_duration_ns());
  };
  EXPECT_NEAR(step_ns(eight) - step_ns(one), 7 * 100, 8);
}

TEST(GradientBucketsTest, PlansOfRandomJobsAreSoundWithThem) {
  Random random(29);
  const RandomJobLimits limits = {.context = 2, .tensor = 2, .expert_percent = 40, .slow_link_percent = 20};
  for (uint64_t seed = 0; seed < 60; ++seed) {
    RandomPlanningCase given = MakeRandomCase(9000000 + seed, limits);
    given.job.mutable_planning()->set_gradient_bucket_bytes(uint64_t{1} << random.Range(0, 34));
    given.job.mutable_profile()->mutable_cluster()->set_exchange_overlap(0.1 * random.Range(0, 10));
    const auto planner = StrategyPlanner::Create(given.job, Planner::Explain::kCauseAlone);
    ASSERT_TRUE(planner.ok()) << planner.status();
    const absl::StatusOr<v1::Plan> plan = (*planner)->MakePlan(given.batch);
    if (!plan.ok()) continue;
    EXPECT_THAT(CheckPlan(given.batch, *plan), IsEmpty());
    EXPECT_THAT(*AuditPlan(given.batch, *plan, given.job.profile()), IsEmpty());
    EXPECT_LE(plan->lower_bound_ns(), plan->predicted().makespan_ns()) << given.Describe();
  }
}

TEST(GradientBucketsTest, OtherDurationsOfReductionsAreFound) {
  const v1::Batch batch = MakeBatch({{0, 3000}, {0, 3000}});
  const v1::JobSpec job = JobWithBuckets(1, 2, 1);
  v1::Plan plan = SoundPlanOf(job, batch);
  plan.mutable_options()->set_gradient_bucket_bytes(uint64_t{1} << 40);
  const auto violations = *AuditPlan(batch, plan, job.profile());
  ASSERT_FALSE(violations.empty());
  EXPECT_THAT(violations.front().message, HasSubstr("REDUCE_GRADIENTS"));
}

TEST(GradientBucketsTest, AreRefusedWithSharesAndAboveATerabyte) {
  v1::JobSpec job = JobWithBuckets(1, 2, 1);
  job.mutable_planning()->set_parameter_shares(true);
  EXPECT_THAT(std::string(Planner::CheckJob(job).message()),
              HasSubstr("job.planning.gradient_bucket_bytes: with job.planning.parameter_shares"));
  EXPECT_THAT(std::string(Planner::CheckJob(JobWithBuckets(1, 2, (uint64_t{1} << 40) + 1)).message()),
              HasSubstr("job.planning.gradient_bucket_bytes"));
  EXPECT_TRUE(Planner::CheckJob(JobWithBuckets(1, 2, uint64_t{1} << 40)).ok());
}

}  // namespace
}  // namespace penstock::core
