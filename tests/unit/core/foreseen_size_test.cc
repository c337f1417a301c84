// Policies that try sizes make the micro-batches that were foreseen, or larger ones, which what planning
// takes follows from.
#include "planner/core/foresee/foreseen_size.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "planner/core/contract/batch_from_proto.h"
#include "planner/core/planner.h"
#include "planner/core/search/policies.h"
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
  EXPECT_LE(2 * foreseen, 3 * MicroBatchesOf(*plan));
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

class LeastSizeTest : public testing::TestWithParam<v1::Policy> {
 protected:
  static constexpr int kLeast = 12;

  LeastSizeTest() : planner_(*Planner::Create(BenchJob(/*stages=*/4, /*replicas=*/1, GetParam()))) {}

  // The samples of each micro-batch of one replica whose ranks have `available_bytes`.
  std::vector<size_t> SizesWith(int64_t available_bytes) const {
    Job job = planner_->job();
    job.foreseen_micro_batch_size = kLeast;
    const ScheduleSpace space(planner_->costs(), job, std::vector<int64_t>(4, available_bytes));
    const std::vector<SampleTokens> tokens = BatchFromProto(BatchOf(/*even=*/true, 48), job)->samples;
    const Candidate plan = PlanByPolicy(space, job, tokens, RunSerially);
    EXPECT_LT(plan.makespan, kInfeasibleNs);
    std::vector<size_t> sizes;
    for (const CandidateReplica& replica : plan.replicas)
      for (const int32_t slot : replica.slots) sizes.push_back(plan.table.samples(slot).size());
    return sizes;
  }

  const std::unique_ptr<Planner> planner_;
};

TEST_P(LeastSizeTest, NoneIsSmallerWhereThoseFit) {
  for (const size_t size : SizesWith(int64_t{1} << 50)) {
    EXPECT_GE(size, kLeast);
    if (GetParam() == v1::POLICY_PADDING) {
      EXPECT_EQ(size, kLeast);
    }
  }
}

TEST_P(LeastSizeTest, WhereTheyDoNotFitSmallerOnesAreMade) {
  const Job& job = planner_->job();
  const std::vector<SampleTokens> one = BatchFromProto(BatchOf(/*even=*/true, 1), job)->samples;
  // Room for two samples, and not for as many as are asked for.
  int64_t alone = 1 << 20;
  const auto fits = [&](int64_t bytes) {
    return ScheduleSpace(planner_->costs(), job, std::vector<int64_t>(4, bytes))
        .FitsAlone(0, SumsOf({0}, one, Layout::kPacked));
  };
  while (!fits(alone)) alone += alone / 16;
  for (const size_t size : SizesWith(2 * alone)) EXPECT_LT(size, kLeast);
}

INSTANTIATE_TEST_SUITE_P(Policies, LeastSizeTest,
                         testing::Values(v1::POLICY_PADDING, v1::POLICY_CONCATENATED, v1::POLICY_PACKED,
                                         v1::POLICY_TOKEN_BUDGET),
                         [](const auto& info) { return v1::Policy_Name(info.param); });

class MostMicroBatchesTest : public testing::TestWithParam<v1::Policy> {
 protected:
  MostMicroBatchesTest() : planner_(*Planner::Create(BenchJob(/*stages=*/4, /*replicas=*/1, GetParam()))) {}

  // Of a batch of uneven lengths, where each rank has `available_bytes`.
  int64_t MadeWith(int64_t most, int64_t available_bytes) const {
    Job job = planner_->job();
    job.most_micro_batches = most;
    const ScheduleSpace space(planner_->costs(), job, std::vector<int64_t>(4, available_bytes));
    const std::vector<SampleTokens> tokens = BatchFromProto(BatchOf(/*even=*/false, 200), job)->samples;
    const Candidate plan = PlanByPolicy(space, job, tokens, RunSerially);
    EXPECT_LT(plan.makespan, kInfeasibleNs);
    return static_cast<int64_t>(plan.replicas.front().slots.size());
  }

  int64_t BytesOfLongest() const {
    std::vector<SampleTokens> tokens = BatchFromProto(BatchOf(/*even=*/false, 200), planner_->job())->samples;
    const auto longest = std::ranges::max_element(tokens, {}, &SampleTokens::target);
    const TokenSums sums = SumsOf({0}, {&*longest, 1}, Layout::kPacked);
    int64_t bytes = 1 << 20;
    const auto fits = [&] {
      const ScheduleSpace space(planner_->costs(), planner_->job(), std::vector<int64_t>(4, bytes));
      return space.FitsAlone(0, sums) && space.FitsAlone(3, sums);
    };
    while (!fits()) bytes += bytes / 16;
    return bytes;
  }

  const std::unique_ptr<Planner> planner_;
};

TEST_P(MostMicroBatchesTest, AreNotExceededUnlessOthersDoNotFit) {
  constexpr int64_t kMuch = int64_t{1} << 50;
  const int64_t best = MadeWith(/*most=*/0, kMuch);
  ASSERT_GT(best, 4);
  EXPECT_EQ(MadeWith(best, kMuch), best);
  EXPECT_LE(MadeWith(best - 1, kMuch), best - 1);
  // Room for two of the longest sample, and not for half of all.
  EXPECT_GT(MadeWith(2, 2 * BytesOfLongest()), 2);
}

INSTANTIATE_TEST_SUITE_P(Policies, MostMicroBatchesTest,
                         testing::Values(v1::POLICY_CONCATENATED, v1::POLICY_PACKED, v1::POLICY_TOKEN_BUDGET),
                         [](const auto& info) { return v1::Policy_Name(info.param); });

TEST(ForeseenSizeGivenTest, ASizeThatTheJobGivesIsTaken) {
  v1::JobSpec job = BenchJob(4, 1, v1::POLICY_PADDING);
  job.mutable_planning()->set_micro_batch_size(3);
  const auto planner = Planner::Create(job);
  ASSERT_TRUE(planner.ok()) << planner.status();
  EXPECT_EQ((*planner)->ShapeOf(BatchOf(true, 1500))->micro_batch_size, 3);
}

}  // namespace
}  // namespace penstock::core
