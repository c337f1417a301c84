// Random jobs of up to 40 samples on up to 32 ranks: every plan passes the checker, keeps within memory and
// its bound, and is the same when it is made again. Smaller ones, against the optimum: random_jobs_test.cc.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/process/sanitized.h"
#include "planner/core/planner.h"
#include "planner/core/verify/check_plan.h"
#include "tests/unit/core/random_job.h"

namespace penstock::core {
namespace {

class PropertyTest : public ::testing::TestWithParam<int> {};

constexpr int kJobsPerCase = 40;
// Apart from the seeds of random_jobs_test.cc.
constexpr uint64_t kFirstSeed = 1000000;

RandomJobLimits Limits() {
  RandomJobLimits limits;
  limits.samples = 40;
  limits.pipeline = 8;
  limits.replicas = 4;
  limits.layers = 16;
  limits.slow_percent = 25;
  limits.slow_link_percent = 15;
  limits.shares_percent = 20;
  limits.weights_percent = 50;
  limits.windows_percent = 25;
  limits.backward_forms_percent = 25;
  limits.calls_percent = 20;
  limits.fixed_step_percent = 30;
  limits.efficiency_percent = 25;
  return limits;
}

TEST_P(PropertyTest, EveryPlanOfARandomJobIsValidAndSound) {
  int planned = 0;
  for (int i = 0; i < kJobsPerCase; ++i) {
    const uint64_t seed = kFirstSeed + GetParam() * kJobsPerCase + i;
    const RandomPlanningCase given = MakeRandomCase(seed, Limits());
    const std::string name = absl::StrCat("seed ", seed, "\n", given.Describe());
    const auto planner = Planner::Create(given.job);
    if (!planner.ok()) {
      EXPECT_EQ(planner.status().code(), absl::StatusCode::kInvalidArgument) << name << planner.status();
      continue;
    }
    const auto plan = (*planner)->MakePlan(given.batch);
    if (!plan.ok()) {
      const auto code = plan.status().code();
      EXPECT_TRUE(code == absl::StatusCode::kInvalidArgument || code == absl::StatusCode::kResourceExhausted)
          << name << plan.status();
      EXPECT_EQ(code == absl::StatusCode::kInvalidArgument, !(*planner)->ValidateBatch(given.batch).ok())
          << name;
      continue;
    }
    ++planned;
    const auto violations = CheckPlan(given.batch, *plan);
    ASSERT_TRUE(violations.empty()) << name << "\nrule " << violations[0].rule << ": "
                                    << violations[0].message;
    EXPECT_LE(plan->lower_bound_ns(), plan->predicted().makespan_ns()) << name;
    EXPECT_EQ(plan->SerializeAsString(), (*planner)->MakePlan(given.batch)->SerializeAsString()) << name;
    for (const v1::RankPrediction& rank : plan->predicted().ranks()) {
      EXPECT_LE(rank.peak_memory_bytes(), (*planner)->job().memory_limits.common) << name;
    }
  }
  // The jobs are not all impossible.
  EXPECT_GT(planned, kJobsPerCase / 2);
}

INSTANTIATE_TEST_SUITE_P(Seeds, PropertyTest, ::testing::Range(0, kSanitized ? 3 : 16));

}  // namespace
}  // namespace penstock::core
