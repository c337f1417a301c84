// The dynamic policy against random plans and against the other policies. Against the optimum: see
// random_jobs_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "planner/core/contract/batch_from_proto.h"
#include "planner/core/planner.h"
#include "tests/unit/core/brute_force.h"
#include "tests/unit/core/job_builder.h"
#include "tests/unit/core/random_job.h"

namespace penstock::core {
namespace {

v1::Batch RandomBatch(int samples, Random* random) {
  std::vector<std::pair<uint32_t, uint32_t>> lengths;
  for (int i = 0; i < samples; ++i) {
    const uint32_t scale = random->Chance(25) ? 800 : 80;
    const uint32_t input = random->Range(1, scale);
    const uint32_t target = random->Range(1, scale);
    lengths.emplace_back(input, target);
  }
  return MakeBatch(lengths);
}

std::vector<std::vector<uint32_t>> RandomGroups(uint32_t samples, Random* random) {
  std::vector<std::vector<uint32_t>> groups(random->Range(1, 20));
  for (uint32_t sample = 0; sample < samples; ++sample) {
    groups[random->Range(0, static_cast<uint32_t>(groups.size()) - 1)].push_back(sample);
  }
  groups.erase(std::remove_if(groups.begin(), groups.end(), [](const auto& group) { return group.empty(); }),
               groups.end());
  return groups;
}

TEST(OptimalityTest, RandomPlansAreWorse) {
  Random random(22);
  for (int round = 0; round < 10; ++round) {
    const auto planner = Planner::Create(GptJob(4, 1, v1::POLICY_DYNAMIC));
    ASSERT_TRUE(planner.ok()) << planner.status();
    const v1::Batch batch = RandomBatch(40, &random);
    const auto plan = (*planner)->MakePlan(batch);
    ASSERT_TRUE(plan.ok()) << plan.status();
    const auto samples = BatchFromProto(batch, (*planner)->job());
    ASSERT_TRUE(samples.ok()) << samples.status();
    int64_t best = INT64_MAX;
    for (int attempt = 0; attempt < 200; ++attempt) {
      best = std::min(best, OneForwardOneBackwardMakespan((*planner)->costs(), (*planner)->job(),
                                                          samples->samples, RandomGroups(40, &random)));
    }
    EXPECT_LT(plan->predicted().makespan_ns(), best);
    EXPECT_LE(plan->lower_bound_ns(), plan->predicted().makespan_ns());
  }
}

// Searches judge by the list schedule, which books links in a slightly other order than the exact timeline.
TEST(OptimalityTest, DynamicIsNeverWorseThanTheOtherPoliciesByMoreThanOnePercent) {
  Random random(23);
  for (int round = 0; round < 20; ++round) {
    const uint32_t pipeline = random.Range(1, 4);
    const uint32_t data = random.Range(1, 3);
    const v1::Batch batch = RandomBatch(30, &random);
    const auto makespan = [&](v1::Policy policy) {
      return (*Planner::Create(GptJob(pipeline, data, policy)))->MakePlan(batch)->predicted().makespan_ns();
    };
    const int64_t dynamic = makespan(v1::POLICY_DYNAMIC);
    EXPECT_LE(dynamic, makespan(v1::POLICY_PADDING) * 1.01);
    EXPECT_LE(dynamic, makespan(v1::POLICY_CONCATENATED));
    EXPECT_LE(dynamic, makespan(v1::POLICY_PACKED) * 1.01);
    EXPECT_LE(dynamic, makespan(v1::POLICY_TOKEN_BUDGET) * 1.01);
  }
}

}  // namespace
}  // namespace penstock::core
