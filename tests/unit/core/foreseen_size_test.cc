// Policies that try sizes make the micro-batches that were foreseen, which what planning takes follows from.
#include "planner/core/search/foreseen_size.h"

#include <gtest/gtest.h>

#include <string>

#include "planner/core/planner.h"
#include "tests/bench/bench_job.h"

namespace penstock::core {
namespace {

struct Case {
  v1::Policy policy;
  bool even;
};

std::string NameOf(const testing::TestParamInfo<Case>& info) {
  return v1::Policy_Name(info.param.policy) + (info.param.even ? "_even" : "_uneven");
}

v1::Batch BatchOf(bool even, int64_t samples) {
  if (!even) return BenchLengths(samples);
  v1::Batch batch;
  for (int64_t i = 0; i < samples; ++i) batch.add_samples()->set_target_tokens(8192);
  return batch;
}

int64_t MicroBatchesOf(const v1::Plan& plan) {
  int64_t count = 0;
  for (const v1::Replica& replica : plan.replicas()) count += replica.micro_batches_size();
  return count;
}

class ForeseenSizeTest : public testing::TestWithParam<Case> {};

TEST_P(ForeseenSizeTest, IsWhatThePolicyMakesOrLess) {
  const auto planner = Planner::Create(BenchJob(/*stages=*/4, /*replicas=*/1, GetParam().policy));
  ASSERT_TRUE(planner.ok()) << planner.status();
  // Enough that it is worth a look.
  const v1::Batch batch = BatchOf(GetParam().even, 1200);
  const auto shape = (*planner)->ShapeOf(batch);
  ASSERT_TRUE(shape.ok()) << shape.status();
  ASSERT_GT(shape->micro_batch_size, 0);
  const auto plan = (*planner)->MakePlan(batch);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const int64_t foreseen = FootprintOf(*shape).micro_batches;
  EXPECT_GE(foreseen, MicroBatchesOf(*plan));
  // Where lengths are uneven, what is nearly as good may be told.
  EXPECT_LE(2 * foreseen, (GetParam().even ? 3 : 6) * MicroBatchesOf(*plan));
  if (GetParam().even) {
    EXPECT_LT(foreseen, 1200) << "more than one sample is better here";
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, ForeseenSizeTest,
                         testing::Values(Case{v1::POLICY_PADDING, true}, Case{v1::POLICY_PADDING, false}),
                         NameOf);

// Shapes whose estimate was twice the truth while one sample was told.
TEST(ForeseenSizeOfUnevenTest, TellsTwoSamplesFromOne) {
  struct Shape {
    uint32_t positions, replicas;
    int64_t samples;
  };
  for (const Shape& shape : {Shape{8, 4, 6000}, Shape{16, 1, 3000}}) {
    v1::JobSpec job = BenchJob(shape.positions, shape.replicas, v1::POLICY_PADDING);
    job.mutable_planning()->set_stage_split(v1::STAGE_SPLIT_EVEN);
    const auto planner = Planner::Create(job);
    ASSERT_TRUE(planner.ok()) << planner.status();
    EXPECT_EQ((*planner)->ShapeOf(BatchOf(false, shape.samples))->micro_batch_size, 2)
        << shape.samples << " samples";
  }
}

TEST(ForeseenSizeGivenTest, ASizeThatTheJobGivesIsTaken) {
  v1::JobSpec job = BenchJob(4, 1, v1::POLICY_PADDING);
  job.mutable_planning()->set_micro_batch_size(3);
  const auto planner = Planner::Create(job);
  ASSERT_TRUE(planner.ok()) << planner.status();
  EXPECT_EQ((*planner)->ShapeOf(BatchOf(true, 1500))->micro_batch_size, 3);
}

}  // namespace
}  // namespace penstock::core
