// The policies that others use, at their best.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "planner/core/planner.h"
#include "planner/core/verify/check_plan.h"
#include "tests/support/sanitizers.h"
#include "tests/unit/core/job_builder.h"

namespace penstock::core {
namespace {

absl::StatusOr<v1::Plan> PlanOf(const v1::JobSpec& job, const v1::Batch& batch) {
  auto planner = Planner::Create(job);
  if (!planner.ok()) return planner.status();
  return (*planner)->MakePlan(batch);
}

v1::Batch RandomBatch(uint32_t seed, int samples) {
  std::mt19937 random(seed);
  std::vector<std::pair<uint32_t, uint32_t>> lengths;
  for (int i = 0; i < samples; ++i) {
    const uint32_t longest = random() % 8 == 0 ? 900 : 90;
    lengths.emplace_back(random() % longest, 1 + random() % longest);
  }
  return MakeBatch(lengths);
}

std::vector<v1::MicroBatch> MicroBatchesOf(const v1::Plan& plan) {
  std::vector<v1::MicroBatch> result;
  for (const v1::Replica& replica : plan.replicas()) {
    result.insert(result.end(), replica.micro_batches().begin(), replica.micro_batches().end());
  }
  return result;
}

class ConcatenatedTest : public ::testing::TestWithParam<v1::Architecture> {
 protected:
  static v1::JobSpec Job() {
    return GetParam() == v1::ARCHITECTURE_T5 ? T5Job(2, 2, v1::POLICY_CONCATENATED)
                                             : GptJob(2, 2, v1::POLICY_CONCATENATED);
  }
};

INSTANTIATE_TEST_SUITE_P(Architectures, ConcatenatedTest,
                         ::testing::Values(v1::ARCHITECTURE_GPT, v1::ARCHITECTURE_T5),
                         [](const auto& info) { return info.param == v1::ARCHITECTURE_T5 ? "T5" : "Gpt"; });

TEST_P(ConcatenatedTest, AllRowsAreOfOneLengthAndHoldTheLongestSample) {
  const v1::Batch batch = RandomBatch(1, 40);
  const auto plan = PlanOf(Job(), batch);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE(CheckPlan(batch, *plan).empty());
  const std::vector<v1::MicroBatch> micro_batches = MicroBatchesOf(*plan);
  const uint32_t source = micro_batches.front().source_length();
  const uint32_t target = micro_batches.front().target_length();
  for (const v1::MicroBatch& micro_batch : micro_batches) {
    EXPECT_EQ(micro_batch.layout(), v1::LAYOUT_CONCATENATED);
    EXPECT_EQ(micro_batch.source_length(), source);
    EXPECT_EQ(micro_batch.target_length(), target);
    EXPECT_EQ(micro_batch.computed_tokens(), uint64_t{micro_batch.rows()} * (source + target));
  }
  for (const v1::Sample& sample : batch.samples()) {
    const bool t5 = GetParam() == v1::ARCHITECTURE_T5;
    EXPECT_LE(t5 ? sample.input_tokens() : 0, source);
    EXPECT_LE(sample.target_tokens() + (t5 ? 0 : sample.input_tokens()), target);
  }
  EXPECT_LT(plan->real_tokens(), plan->computed_tokens());
}

TEST_P(ConcatenatedTest, ARowThatIsGivenIsRaisedToTheLongestSample) {
  const v1::Batch batch = MakeBatch({{100, 100}, {20, 20}, {50, 50}});
  v1::JobSpec job = Job();
  job.mutable_mesh()->set_data(1);
  const auto length = [&](uint32_t cap) {
    job.mutable_planning()->set_token_cap(cap);
    const auto plan = PlanOf(job, batch);
    EXPECT_TRUE(plan.ok()) << plan.status();
    if (!plan.ok()) return 0U;
    return MicroBatchesOf(*plan)[0].source_length() + MicroBatchesOf(*plan)[0].target_length();
  };
  EXPECT_EQ(length(150), 200);
  EXPECT_EQ(length(300), 300);
}

TEST_P(ConcatenatedTest, RowsOfAMicroBatchAreAsManyAsAreGiven) {
  v1::JobSpec job = Job();
  job.mutable_mesh()->set_data(1);
  job.mutable_planning()->set_micro_batch_size(3);
  const auto plan = PlanOf(job, RandomBatch(2, 40));
  ASSERT_TRUE(plan.ok()) << plan.status();
  const std::vector<v1::MicroBatch> micro_batches = MicroBatchesOf(*plan);
  for (size_t i = 0; i + 1 < micro_batches.size(); ++i) EXPECT_EQ(micro_batches[i].rows(), 3);
  EXPECT_LE(micro_batches.back().rows(), 3);
}

TEST(PoliciesTest, NoGivenSizeIsBetterThanTheSearchedOne) {
  for (const v1::Policy policy : {v1::POLICY_PADDING, v1::POLICY_PACKED, v1::POLICY_TOKEN_BUDGET}) {
    for (uint32_t seed = 0; seed < 5; ++seed) {
      const v1::Batch batch = RandomBatch(10 + seed, 60);
      v1::JobSpec job = GptJob(4, 2, policy);
      const auto searched = PlanOf(job, batch);
      ASSERT_TRUE(searched.ok()) << searched.status();
      for (const uint32_t size : {1, 2, 3, 4, 6, 8, 12}) {
        job.mutable_planning()->set_micro_batch_size(size);
        job.mutable_planning()->set_token_cap(size * 150);
        const auto given = PlanOf(job, batch);
        ASSERT_TRUE(given.ok()) << given.status();
        // A cap may lie between two that are tried.
        EXPECT_LE(static_cast<double>(searched->predicted().makespan_ns()),
                  1.03 * static_cast<double>(given->predicted().makespan_ns()))
            << v1::Policy_Name(policy) << " seed " << seed << " size " << size;
      }
    }
  }
}

// Each sample alone is a micro-batch that every policy can fall back to, but for rows that must hold the
// longest source and the longest target of the batch together.
TEST(PoliciesTest, WhereEverySampleFitsAloneThereIsAPlan) {
  int tight = 0;
  for (const v1::Policy policy : {v1::POLICY_PADDING, v1::POLICY_PACKED, v1::POLICY_TOKEN_BUDGET}) {
    for (uint32_t seed = 0; seed < static_cast<uint32_t>(Cases(20)); ++seed) {
      const v1::Batch batch = RandomBatch(50 + seed, 24);
      v1::JobSpec job = seed % 2 == 0 ? GptJob(4, 2, policy) : T5Job(4, 2, policy);
      for (const int64_t memory : {60'000, 80'000, 110'000, 150'000, 200'000, 300'000}) {
        job.mutable_planning()->set_memory_limit_bytes(memory);
        const auto planner = Planner::Create(job);
        if (!planner.ok() || !(*planner)->ValidateBatch(batch).ok()) continue;
        ++tight;
        const auto plan = (*planner)->MakePlan(batch);
        EXPECT_TRUE(plan.ok()) << v1::Policy_Name(policy) << " seed " << seed << " memory " << memory << ": "
                               << plan.status();
      }
    }
  }
  EXPECT_GT(tight, Cases(50));
}

}  // namespace
}  // namespace penstock::core
