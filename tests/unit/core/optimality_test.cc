// The dynamic policy against brute force over partitions and orders, and against random plans; the lower
// bound against both.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <random>
#include <vector>

#include "planner/core/planner.h"
#include "planner/core/search/candidate.h"
#include "planner/core/search/policies.h"
#include "tests/unit/core/job_builder.h"

namespace penstock::core {
namespace {

// One replica, no optimizer time: the makespan of a plan ends with its last backward pass.
v1::JobSpec OneReplica(bool t5, uint32_t pipeline) {
  v1::JobSpec job = t5 ? T5Job(pipeline, 1, v1::POLICY_DYNAMIC) : GptJob(pipeline, 1, v1::POLICY_DYNAMIC);
  job.mutable_planning()->set_layout(v1::LAYOUT_CHOICE_PACKED);
  job.mutable_profile()->set_optimizer_ns_per_parameter_byte(0);
  return job;
}

v1::Batch RandomBatch(int samples, std::mt19937* random) {
  std::vector<std::pair<uint32_t, uint32_t>> lengths;
  for (int i = 0; i < samples; ++i) {
    const uint32_t scale = (*random)() % 4 == 0 ? 800 : 80;
    lengths.emplace_back(1 + (*random)() % scale, 1 + (*random)() % scale);
  }
  return MakeBatch(lengths);
}

std::vector<SampleTokens> TokensOf(const v1::Batch& batch, bool t5) {
  std::vector<SampleTokens> tokens;
  for (const v1::Sample& sample : batch.samples()) {
    const uint32_t input = sample.input_tokens();
    const uint32_t target = sample.target_tokens();
    tokens.push_back(t5 ? SampleTokens{input, target, target} : SampleTokens{0, input + target, target});
  }
  return tokens;
}

int64_t MakespanOf(const CostModel& costs, const std::vector<SampleTokens>& tokens, const Groups& groups) {
  ReplicaEvaluator evaluator(costs, std::vector<int64_t>(costs.stages(), int64_t{1} << 40));
  MicroBatchTable table(costs, tokens, RecomputeMode::kAuto);
  std::vector<int> slots;
  for (const auto& group : groups) slots.push_back(table.Add(group, Layout::kPacked));
  return evaluator.Makespan(table, slots, 0);
}

// Calls `visit` for every division of samples into groups.
void ForEachPartition(uint32_t sample, uint32_t samples, Groups* groups, const std::function<void()>& visit) {
  if (sample == samples) return visit();
  for (size_t group = 0; group < groups->size(); ++group) {
    (*groups)[group].push_back(sample);
    ForEachPartition(sample + 1, samples, groups, visit);
    (*groups)[group].pop_back();
  }
  groups->push_back({sample});
  ForEachPartition(sample + 1, samples, groups, visit);
  groups->pop_back();
}

// The best makespan over all partitions and all orders of their micro-batches.
int64_t BruteForce(const CostModel& costs, const std::vector<SampleTokens>& tokens) {
  int64_t best = kInfeasibleNs;
  Groups groups;
  ForEachPartition(0, static_cast<uint32_t>(tokens.size()), &groups, [&] {
    Groups order = groups;
    std::sort(order.begin(), order.end());
    do {
      best = std::min(best, MakespanOf(costs, tokens, order));
    } while (std::next_permutation(order.begin(), order.end()));
  });
  return best;
}

TEST(OptimalityTest, SmallPlansAreCloseToBruteForceAndNeverBelowTheBound) {
  std::mt19937 random(21);
  std::vector<double> ratios;
  for (int round = 0; round < 30; ++round) {
    const bool t5 = round % 3 == 0;
    const v1::JobSpec job = OneReplica(t5, 1 + random() % 4);
    const auto planner = Planner::Create(job);
    ASSERT_TRUE(planner.ok()) << planner.status();
    const v1::Batch batch = RandomBatch(5, &random);
    const auto plan = (*planner)->MakePlan(batch);
    ASSERT_TRUE(plan.ok()) << plan.status();
    const int64_t best = BruteForce((*planner)->costs(), TokensOf(batch, t5));
    EXPECT_LE(plan->lower_bound_ns(), best);
    ratios.push_back(static_cast<double>(plan->predicted().makespan_ns()) / static_cast<double>(best));
  }
  std::sort(ratios.begin(), ratios.end());
  EXPECT_LE(ratios[ratios.size() / 2], 1.03);
  EXPECT_LE(ratios.back(), 1.10);
}

TEST(OptimalityTest, RandomPlansAreWorse) {
  std::mt19937 random(22);
  for (int round = 0; round < 10; ++round) {
    const v1::JobSpec job = OneReplica(/*t5=*/false, 4);
    const auto planner = Planner::Create(job);
    ASSERT_TRUE(planner.ok()) << planner.status();
    const v1::Batch batch = RandomBatch(40, &random);
    const auto plan = (*planner)->MakePlan(batch);
    ASSERT_TRUE(plan.ok()) << plan.status();
    const std::vector<SampleTokens> tokens = TokensOf(batch, false);
    int64_t best = kInfeasibleNs;
    for (int attempt = 0; attempt < 200; ++attempt) {
      Groups groups(1 + random() % 20);
      for (uint32_t sample = 0; sample < tokens.size(); ++sample) {
        groups[random() % groups.size()].push_back(sample);
      }
      groups.erase(
          std::remove_if(groups.begin(), groups.end(), [](const auto& group) { return group.empty(); }),
          groups.end());
      best = std::min(best, MakespanOf((*planner)->costs(), tokens, groups));
    }
    EXPECT_LT(plan->predicted().makespan_ns(), best);
    EXPECT_LE(plan->lower_bound_ns(), plan->predicted().makespan_ns());
  }
}

TEST(OptimalityTest, DynamicIsNeverWorseThanTheOtherPolicies) {
  std::mt19937 random(23);
  for (int round = 0; round < 20; ++round) {
    const uint32_t pipeline = 1 + random() % 4;
    const uint32_t data = 1 + random() % 3;
    const v1::Batch batch = RandomBatch(30, &random);
    const auto makespan = [&](v1::Policy policy) {
      return (*Planner::Create(GptJob(pipeline, data, policy)))->MakePlan(batch)->predicted().makespan_ns();
    };
    const int64_t dynamic = makespan(v1::POLICY_DYNAMIC);
    EXPECT_LE(dynamic, makespan(v1::POLICY_PADDING));
    EXPECT_LE(dynamic, makespan(v1::POLICY_PACKED));
    EXPECT_LE(dynamic, makespan(v1::POLICY_TOKEN_BUDGET));
  }
}

}  // namespace
}  // namespace penstock::core
