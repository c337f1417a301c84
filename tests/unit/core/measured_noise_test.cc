// How noisy passes are, found by a fit, and what of it is on the costs.
#include "planner/core/calibrate/measured_noise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "planner/core/calibrate/foretold_pass.h"
#include "planner/core/calibrate/revise_profile.h"
#include "tests/unit/core/job_builder.h"
#include "tests/unit/core/ran_iterations.h"

namespace penstock::core {
namespace {

TEST(CalibrateTest, NoiseOfPassesIsMeasuredBesideWrongCosts) {
  for (const v1::Schedule schedule : {v1::SCHEDULE_ONE_FORWARD_ONE_BACKWARD, v1::SCHEDULE_SPLIT_BACKWARD}) {
    for (const double noise : {0.05, 0.2}) {
      v1::JobSpec job = GptJob(2, 2, v1::POLICY_DYNAMIC);
      job.mutable_planning()->set_schedule(schedule);
      CostFactors truth;
      truth.all = 1.7;
      const v1::CostProfile slower =
          WithSlowRank(ReviseProfile(job.profile(), Architecture::kGpt, truth), 1, 1.5);
      const auto fitted = Ran(job, slower, 8, noise).Fit();
      ASSERT_TRUE(fitted.ok() && fitted->has_value()) << fitted.status();
      EXPECT_NEAR((*fitted)->profile.pass_noise(), noise, 0.15 * noise);
      // Without it nothing is said of noise.
      EXPECT_EQ((*Ran(job, slower, 8).Fit())->profile.pass_noise(), 0);
    }
  }
}

// It comes of the noise that a fitted profile has, and is not counted once more.
TEST(CalibrateTest, WaitingThatComesOfNoiseIsNotPutOnPasses) {
  const v1::JobSpec job = GptJob(4, 2, v1::POLICY_DYNAMIC);
  CostFactors truth;
  truth.all = 1.5;
  const Ran ran(job, ReviseProfile(job.profile(), Architecture::kGpt, truth), 32, /*noise=*/0.25);
  const auto fitted = ran.Fit();
  ASSERT_TRUE(fitted.ok() && fitted->has_value()) << fitted.status();
  ASSERT_GT((*fitted)->profile.pass_noise(), 0.15);
  EXPECT_NEAR(ran.ExpectedOverMeasured((*fitted)->profile), 1, 0.02);
}

// Ranks that are slow and fast together, and passes that make the next ones shorter, wait less than noise of
// single passes would have them wait.
TEST(CalibrateTest, NoiseIsWhatRanksWaitForAndPassesStayWhatTheyAre) {
  const v1::JobSpec job = GptJob(4, 2, v1::POLICY_DYNAMIC);
  Ran ran(job, job.profile(), 32, /*noise=*/0.25);
  const auto all = ran.Fit();
  ASSERT_TRUE(all.ok() && all->has_value()) << all.status();
  ran.AddWaiting(0.96);
  const auto less = ran.Fit();
  ASSERT_TRUE(less.ok() && less->has_value()) << less.status();
  EXPECT_LT((*less)->profile.pass_noise(), 0.8 * (*all)->profile.pass_noise());
  EXPECT_GT((*less)->profile.pass_noise(), 0);
  EXPECT_LT((*less)->profile.waiting_share(), 0.01);
  EXPECT_NEAR(ran.ExpectedOverMeasured((*less)->profile), 1, 0.02);
  const auto token_ns = [](const v1::CostProfile& profile) {
    return profile.layers(0).forward().target_token_ns();
  };
  EXPECT_NEAR(token_ns((*less)->profile), token_ns((*all)->profile), 0.03 * token_ns((*all)->profile));
}

TEST(CalibrateTest, WhatIsCommonToAnIterationIsNoNoise) {
  const v1::JobSpec job = GptJob(2, 2, v1::POLICY_DYNAMIC);
  Ran ran(job, job.profile(), 8);
  std::mt19937_64 random(5);
  ran.Lengthen([&] { return 1 + static_cast<double>(random() % 20) / 100; });
  const auto fitted = ran.Fit();
  ASSERT_TRUE(fitted.ok()) << fitted.status();
  if (!fitted->has_value()) return;
  EXPECT_EQ((*fitted)->profile.pass_noise(), 0);
}

TEST(MeasuredNoiseTest, IsThatOfSinglePassesAndStaysWhereItIsMuchTheSame) {
  const v1::JobSpec job = GptJob(1, 1, v1::POLICY_DYNAMIC);
  const CostModel costs = ModelOf(job);
  const auto passes_with = [&](double noise) {
    std::mt19937_64 random(3);
    std::normal_distribution<double> normal;
    std::vector<MeasuredPass> passes;
    for (int i = 0; i < 2000; ++i) {
      MeasuredPass& pass = passes.emplace_back();
      pass.rank = 0;
      pass.iteration = i / 50;
      AddPacked({0, static_cast<uint32_t>(100 + i % 300), 10}, &pass.sums);
      pass.duration_ns = ForetoldNs(costs, pass) * std::exp(noise * normal(random));
    }
    return passes;
  };
  EXPECT_NEAR(MeasuredNoise(costs, passes_with(0.1)).value_or(0), 0.1, 0.01);
  EXPECT_EQ(SteadyNoise(0.1, 0.09), 0.09);
  EXPECT_EQ(SteadyNoise(0.1, 0.05), 0.1);
  // Little is none, unless there was more.
  EXPECT_EQ(SteadyNoise(0.015, 0), 0);
  EXPECT_EQ(SteadyNoise(0.015, 0.03), 0.015);
  EXPECT_EQ(SteadyNoise(0.005, 0.03), 0);
  // One that stood still, and too few to tell.
  std::vector<MeasuredPass> passes = passes_with(0.1);
  passes[7].duration_ns *= 1000;
  EXPECT_NEAR(MeasuredNoise(costs, passes).value_or(0), 0.1, 0.01);
  passes.resize(20);
  EXPECT_FALSE(MeasuredNoise(costs, passes).has_value());
}

}  // namespace
}  // namespace penstock::core
