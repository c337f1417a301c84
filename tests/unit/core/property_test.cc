// Random jobs and batches: every plan passes the checker, keeps within memory, and predicts what the
// simulator says.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "planner/core/planner.h"
#include "planner/core/verify/check_plan.h"
#include "tests/unit/core/job_builder.h"

namespace penstock::core {
namespace {

// Uniform in [low, high]; the same on every platform, unlike std::uniform_int_distribution.
class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  uint32_t Range(uint32_t low, uint32_t high) {
    return low + static_cast<uint32_t>(engine_() % (uint64_t{high} - low + 1));
  }
  bool Chance(uint32_t percent) { return Range(1, 100) <= percent; }

 private:
  std::mt19937_64 engine_;
};

void RandomPlanning(Random* random, v1::PlanningOptions* planning) {
  planning->set_layout(static_cast<v1::LayoutChoice>(random->Range(0, 3)));
  if (random->Chance(30)) planning->set_recompute(v1::RECOMPUTE_NONE);
  if (random->Chance(20)) planning->set_recompute(v1::RECOMPUTE_FULL);
  if (random->Chance(20)) planning->set_micro_batch_size(random->Range(1, 5));
  if (random->Chance(20)) planning->set_token_cap(random->Range(1, 4000));
  planning->set_effort(random->Chance(50) ? v1::EFFORT_FAST : v1::EFFORT_NORMAL);
  planning->set_shard_optimizer_state(random->Chance(30));
  // From far too little to plenty.
  if (random->Chance(60)) planning->set_memory_limit_bytes(int64_t{1000} << random->Range(4, 14));
}

v1::JobSpec RandomJob(Random* random) {
  const auto policies = {v1::POLICY_PADDING, v1::POLICY_CONCATENATED, v1::POLICY_PACKED,
                         v1::POLICY_TOKEN_BUDGET};
  const v1::Policy policy =
      random->Chance(50) ? v1::POLICY_DYNAMIC : *(policies.begin() + random->Range(0, 3));
  const uint32_t pipeline = random->Range(1, 8);
  const uint32_t data = random->Range(1, 4);
  v1::JobSpec job = random->Chance(50) ? GptJob(pipeline, data, policy) : T5Job(pipeline, data, policy);
  RandomPlanning(random, job.mutable_planning());
  if (random->Chance(30)) {
    auto& layers = *job.mutable_profile()->mutable_layers();
    for (v1::LayerCost& layer : layers) layer.set_loss_tokens_only(layer.name() == "head");
  }
  v1::Cluster* cluster = job.mutable_profile()->mutable_cluster();
  cluster->set_gpus_per_node(random->Range(1, 8));
  // Links from ones that hide to ones that take longer than the passes.
  const double bandwidth = 1e6 * static_cast<double>(1 << random->Range(2, 14));
  cluster->set_intra_node_bytes_per_second(bandwidth);
  cluster->set_inter_node_bytes_per_second(bandwidth / 2);
  if (random->Chance(15)) {
    cluster->set_intra_node_latency_ns(0);
    cluster->set_inter_node_latency_ns(0);
  }
  return job;
}

v1::Batch RandomBatch(Random* random) {
  std::vector<std::pair<uint32_t, uint32_t>> lengths;
  const uint32_t samples = random->Range(1, 40);
  const uint32_t longest = 1u << random->Range(1, 11);
  for (uint32_t i = 0; i < samples; ++i) {
    uint32_t input = random->Chance(10) ? 0 : random->Range(0, random->Chance(80) ? longest / 8 : longest);
    uint32_t target = random->Chance(10) ? 0 : random->Range(0, random->Chance(80) ? longest / 8 : longest);
    if (input + target == 0) target = 1;
    lengths.emplace_back(input, target);
  }
  return MakeBatch(lengths);
}

class PropertyTest : public ::testing::TestWithParam<int> {};

constexpr int kJobsPerCase = 40;

TEST_P(PropertyTest, EveryPlanOfARandomJobIsValidAndSound) {
  int planned = 0;
  for (int i = 0; i < kJobsPerCase; ++i) {
    const int seed = GetParam() * kJobsPerCase + i;
    Random random(seed);
    const v1::JobSpec job = RandomJob(&random);
    const v1::Batch batch = RandomBatch(&random);
    const std::string name = absl::StrCat("seed ", seed, "\n", job.mesh().ShortDebugString(), " ",
                                          job.planning().ShortDebugString());
    const auto planner = Planner::Create(job);
    if (!planner.ok()) {
      EXPECT_EQ(planner.status().code(), absl::StatusCode::kInvalidArgument) << name << planner.status();
      continue;
    }
    const auto plan = (*planner)->MakePlan(batch);
    if (!plan.ok()) {
      const auto code = plan.status().code();
      EXPECT_TRUE(code == absl::StatusCode::kInvalidArgument || code == absl::StatusCode::kResourceExhausted)
          << name << plan.status();
      EXPECT_EQ(code == absl::StatusCode::kInvalidArgument, !(*planner)->ValidateBatch(batch).ok()) << name;
      continue;
    }
    ++planned;
    const auto violations = CheckPlan(batch, *plan);
    ASSERT_TRUE(violations.empty()) << name << "\nrule " << violations[0].rule << ": "
                                    << violations[0].message;
    EXPECT_LE(plan->lower_bound_ns(), plan->predicted().makespan_ns()) << name;
    EXPECT_EQ(plan->SerializeAsString(), (*planner)->MakePlan(batch)->SerializeAsString()) << name;
    for (const v1::RankPrediction& rank : plan->predicted().ranks()) {
      EXPECT_LE(rank.peak_memory_bytes(), (*planner)->job().memory_limit_bytes) << name;
    }
  }
  // The jobs are not all impossible.
  EXPECT_GT(planned, kJobsPerCase / 3);
}

INSTANTIATE_TEST_SUITE_P(Seeds, PropertyTest, ::testing::Range(0, 16));

}  // namespace
}  // namespace penstock::core
