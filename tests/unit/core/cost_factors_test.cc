// What a fit is made of: least squares, a plan that is run again, a profile with other factors.
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "planner/core/calibrate/durations.h"
#include "planner/core/calibrate/least_squares.h"
#include "planner/core/calibrate/revise_profile.h"
#include "planner/core/contract/batch_from_proto.h"
#include "planner/core/planner.h"
#include "planner/core/replay/program_set_of_plan.h"
#include "planner/core/simulate/simulator.h"
#include "tests/unit/core/golden_jobs.h"
#include "tests/unit/core/job_builder.h"

namespace penstock::core {
namespace {

TEST(FitFactorsTest, FindsTheFactorsOfPartsAmongOutliers) {
  std::mt19937_64 random(3);
  std::vector<FitRow> rows;
  for (int i = 0; i < 200; ++i) {
    FitRow& row = rows.emplace_back();
    row.parts = {1000.0, static_cast<double>(random() % 5000), static_cast<double>(random() % 9000)};
    row.measured = 3 * row.parts[0] + 0.5 * row.parts[1] + 1.5 * row.parts[2];
    if (i % 10 == 0) row.measured *= 8;
  }
  const std::vector<double> factors = FitFactors(rows, 3);
  EXPECT_NEAR(factors[0], 3, 0.15);
  EXPECT_NEAR(factors[1], 0.5, 0.05);
  EXPECT_NEAR(factors[2], 1.5, 0.05);
}

TEST(FitFactorsTest, WhatRowsDoNotTellApartKeepsItsProportions) {
  std::vector<FitRow> rows(20, {.parts = {600, 300, 100}, .measured = 2000});
  for (const double factor : FitFactors(rows, 3)) EXPECT_NEAR(factor, 2, 1e-6);
  EXPECT_EQ(FitFactors({}, 2), (std::vector<double>{1, 1}));
}

TEST(ReplayTest, APlanReplayedWithItsOwnDurationsTakesWhatItSays) {
  for (const GoldenJob& job : GoldenJobs()) {
    const auto planner = Planner::Create(job.given.job);
    ASSERT_TRUE(planner.ok()) << job.name;
    const auto plan = (*planner)->MakePlan(job.given.batch);
    ASSERT_TRUE(plan.ok()) << job.name;
    auto programs = ProgramSetOfPlan(*plan);
    ASSERT_TRUE(programs.ok()) << job.name << programs.status();
    Simulator simulator;
    ASSERT_TRUE(simulator.Run(*programs).ok()) << job.name;
    EXPECT_EQ(simulator.makespan_ns(), plan->predicted().makespan_ns()) << job.name;
    // And the costs give the same anew.
    const std::vector<Instruction> planned = programs->instructions;
    ASSERT_TRUE(SetDurations(*plan, *BatchFromProto(job.given.batch, (*planner)->job()), (*planner)->costs(),
                             &*programs)
                    .ok())
        << job.name;
    for (size_t i = 0; i < planned.size(); ++i) {
      EXPECT_EQ(programs->instructions[i].duration_ns, planned[i].duration_ns)
          << job.name << ": instruction " << i << ", op " << static_cast<int>(planned[i].op);
    }
  }
}

// What simulated ranks take, whatever a plan was made with.
TEST(ReplayTest, OwnDurationsAreThoseOfTheGivenCosts) {
  for (const GoldenJob& job : GoldenJobs()) {
    const auto planner = Planner::Create(job.given.job);
    ASSERT_TRUE(planner.ok()) << job.name;
    const auto plan = (*planner)->MakePlan(job.given.batch);
    const auto batch = BatchFromProto(job.given.batch, (*planner)->job());
    ASSERT_TRUE(plan.ok() && batch.ok()) << job.name;
    const auto joint = JointDurationsOf(*plan, (*planner)->costs());
    ASSERT_TRUE(joint.ok()) << job.name << joint.status();
    for (const v1::Program& program : plan->programs()) {
      const auto durations =
          OwnDurations(*plan, *batch, (*planner)->costs(), static_cast<int>(program.rank()), *joint);
      ASSERT_TRUE(durations.ok()) << job.name << durations.status();
      ASSERT_EQ(durations->size(), static_cast<size_t>(program.instructions_size()));
      for (const v1::Instruction& instruction : program.instructions()) {
        const int64_t alone = instruction.own_duration_ns() > 0 ? instruction.own_duration_ns()
                                                                : instruction.expected_duration_ns();
        ASSERT_EQ((*durations)[instruction.id()], alone)
            << job.name << ", rank " << program.rank() << ": " << instruction.ShortDebugString();
      }
    }
  }
}

// Noise may say otherwise, and no profile may.
TEST(ReviseProfileTest, RecomputingMoreNeverTakesLess) {
  v1::JobSpec job = GptJob(2, 2, v1::POLICY_DYNAMIC);
  CostFactors noisy;
  for (auto& levels : noisy.backward_ratio) levels = {1.5, 0.7, 0.4};
  for (const double selective : {0.0, 2.1}) {
    for (v1::LayerCost& layer : *job.mutable_profile()->mutable_layers()) {
      if (layer.name() != "head") layer.set_backward_ratio_selective(selective);
    }
    v1::JobSpec revised = job;
    *revised.mutable_profile() = ReviseProfile(job.profile(), Architecture::kGpt, noisy);
    const auto planner = Planner::Create(revised);
    EXPECT_TRUE(planner.ok()) << planner.status();
    EXPECT_EQ(revised.profile().layers(0).backward_ratio_selective() == 0, selective == 0);
  }
}

}  // namespace
}  // namespace penstock::core
