// Random small jobs of every policy, schedule and stage layout, with stage groups and without: whatever fits
// with full recompute is not refused where the planner may choose what it recomputes.
//
// PENSTOCK_RANDOM_JOBS=N runs N jobs; PENSTOCK_RANDOM_SEED=S runs job S alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/process/sanitized.h"
#include "planner/core/planner.h"
#include "planner/core/verify/check_plan.h"
#include "tests/support/environment.h"
#include "tests/unit/core/random_job.h"

namespace penstock::core {
namespace {

// More than any of these jobs needs.
constexpr int64_t kPlentyBytes = int64_t{1} << 50;

int RecomputeJobCount() {
#if defined(NDEBUG)
  return kSanitized ? 20 : 400;
#else
  return 20;
#endif
}

RandomJobLimits RecomputeJobLimits(int seed) {
  RandomJobLimits limits;
  limits.replicas = 2;
  limits.windows_percent = 25;
  limits.slow_percent = 15;
  limits.shares_percent = 20;
  if (seed % 4 != 0) limits.context = limits.tensor = 4;
  if (seed % 4 == 1) limits.expert_percent = 50;
  limits.dense_percent = 50;
  if (seed % 2 == 0) limits.samples = 20;
  return limits;
}

absl::StatusOr<v1::Plan> PlanWith(v1::JobSpec job, const v1::Batch& batch, v1::Recompute recompute,
                                  int64_t limit_bytes) {
  job.mutable_planning()->set_recompute(recompute);
  job.mutable_planning()->set_memory_limit_bytes(limit_bytes);
  absl::StatusOr<std::unique_ptr<Planner>> planner = Planner::Create(job, Planner::Explain::kCauseAlone);
  if (!planner.ok()) return planner.status();
  return (*planner)->MakePlan(batch);
}

int64_t PeakBytes(const v1::Plan& plan) {
  int64_t peak = 0;
  for (const v1::RankPrediction& rank : plan.predicted().ranks())
    peak = std::max(peak, rank.peak_memory_bytes());
  return peak;
}

class RecomputeRefusalTest : public testing::Test {
 protected:
  void Run(int seed);
  void RunWithin(const RandomPlanningCase& given, int64_t limit_bytes);

  std::string name_;
  int jobs_ = 0;
  int limits_ = 0;
  int refused_ = 0;
  // Of these, such as are refused with full recompute, too.
  int full_refused_ = 0;
};

void RecomputeRefusalTest::RunWithin(const RandomPlanningCase& given, int64_t limit_bytes) {
  ++limits_;
  const absl::StatusOr<v1::Plan> plan = PlanWith(given.job, given.batch, v1::RECOMPUTE_AUTO, limit_bytes);
  if (plan.ok()) {
    EXPECT_LE(PeakBytes(*plan), limit_bytes) << name_;
    const auto violations = CheckPlan(given.batch, *plan);
    EXPECT_TRUE(violations.empty()) << name_ << violations[0].rule << ": " << violations[0].message;
    return;
  }
  ++refused_;
  const bool full = PlanWith(given.job, given.batch, v1::RECOMPUTE_FULL, limit_bytes).ok();
  if (!full) ++full_refused_;
  std::cout << "limit " << limit_bytes << " (full recompute " << (full ? "fits" : "is refused, too")
            << "): " << plan.status() << "\n"
            << name_;
}

void RecomputeRefusalTest::Run(int seed) {
  RandomPlanningCase given = MakeRandomCase(5000000 + seed, RecomputeJobLimits(seed));
  if (seed % 3 == 0) given.job.mutable_planning()->set_schedule(v1::SCHEDULE_ONE_FORWARD_ONE_BACKWARD);
  if (given.job.planning().policy() == v1::POLICY_DYNAMIC) {
    given.job.mutable_planning()->set_effort(v1::EFFORT_FAST);
    if (seed % 3 != 0) given.job.mutable_planning()->set_policy(v1::POLICY_PACKED);
  }
  const auto full = PlanWith(given.job, given.batch, v1::RECOMPUTE_FULL, kPlentyBytes);
  const auto none = PlanWith(given.job, given.batch, v1::RECOMPUTE_NONE, kPlentyBytes);
  if (!full.ok() || !none.ok()) return;
  ++jobs_;
  name_ = absl::StrCat("seed ", seed, "\n", given.Describe());
  const int64_t least = PeakBytes(*full);
  const int64_t more = std::max<int64_t>(PeakBytes(*none) - least, 0);
  for (const int64_t eighths : {0, 1, 4}) RunWithin(given, least + more * eighths / 8);
  int64_t parameters = least;
  for (const v1::Program& program : full->programs())
    parameters = std::min(parameters, program.static_memory_bytes());
  // Below what it takes with plenty: there the planner must look for another one.
  for (const int64_t percent : {95, 85}) {
    const int64_t limit = parameters + (least - parameters) * percent / 100;
    if (PlanWith(given.job, given.batch, v1::RECOMPUTE_FULL, limit).ok()) RunWithin(given, limit);
  }
}

// Context ranks with unequal shares (79, 251), alone in a padded micro-batch (189), and ranks with several
// stages (141, 311): the searches counted more than the programs take.
TEST_F(RecomputeRefusalTest, JobsOfWhichSearchesCountedTooMuchHaveAPlan) {
  for (const int seed : {79, 141, 189, 251, 311}) Run(seed);
  EXPECT_EQ(jobs_, 5);
  EXPECT_EQ(refused_, 0);
}

TEST_F(RecomputeRefusalTest, WhatFitsWithFullRecomputeIsNotRefused) {
  const int only = FromEnvironment("PENSTOCK_RANDOM_SEED", -1);
  const int count = only >= 0 ? only + 1 : FromEnvironment("PENSTOCK_RANDOM_JOBS", RecomputeJobCount());
  for (int seed = std::max(only, 0); seed < count; ++seed) Run(seed);
  std::cout << jobs_ << " of " << count << " jobs, " << limits_ << " limits: " << refused_ << " refused, "
            << full_refused_ << " of them with full recompute, too\n";
  EXPECT_EQ(refused_, 0);
}

}  // namespace
}  // namespace penstock::core
