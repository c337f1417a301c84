// Slow ranks of stage groups, found by what each rank says that it waited for the others inside of passes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/core/calibrate/find_slow_ranks.h"
#include "planner/core/calibrate/foretold_pass.h"
#include "planner/core/calibrate/revise_profile.h"
#include "tests/unit/core/group_jobs.h"
#include "tests/unit/core/job_builder.h"
#include "tests/unit/core/ran_iterations.h"
#include "tests/unit/core/slow_passes.h"

namespace penstock::core {
namespace {

using ::testing::IsEmpty;

struct Degrees {
  uint32_t pipeline = 1;
  uint32_t data = 1;
  uint32_t context = 1;
  uint32_t tensor = 1;

  uint32_t ranks() const { return pipeline * data * context * tensor; }
};

std::string NameOf(const Degrees& of) {
  return absl::StrCat("pp ", of.pipeline, " dp ", of.data, " cp ", of.context, " tp ", of.tensor);
}

v1::JobSpec JobOf(const Degrees& of) {
  v1::JobSpec job = GptJob(of.pipeline, of.data, v1::POLICY_DYNAMIC);
  SetGroup(of.context, of.tensor, &job);
  return job;
}

// One rank computes `factor` times as long as the others, whose groups wait for it.
Ran RanWithSlowRank(const v1::JobSpec& job, uint32_t slow, double factor) {
  Ran ran(job, factor > 1 ? WithSlowRank(job.profile(), slow, factor) : job.profile(), 6);
  ran.ReportExchanges([&](uint32_t rank) { return rank == slow ? factor : 1; });
  return ran;
}

const Degrees kMeshes[] = {
    {.tensor = 2},  {.pipeline = 2, .tensor = 2},  {.data = 2, .tensor = 2},
    {.context = 2}, {.pipeline = 2, .context = 4}, {.data = 2, .context = 2, .tensor = 2}};

TEST(CalibratedGroupsTest, TheSlowRankOfAGroupIsNamedAndNotTheFirst) {
  for (const Degrees& mesh : kMeshes) {
    const v1::JobSpec job = JobOf(mesh);
    for (uint32_t slow = 0; slow < mesh.ranks(); ++slow) {
      const std::string name = absl::StrCat(NameOf(mesh), ", rank ", slow);
      const Ran ran = RanWithSlowRank(job, slow, 1.3);
      const auto fitted = ran.Fit();
      ASSERT_TRUE(fitted.ok() && fitted->has_value()) << name << fitted.status();
      const v1::CostProfile& profile = (*fitted)->profile;
      ASSERT_EQ(profile.slow_ranks_size(), 1) << name << profile.ShortDebugString();
      EXPECT_EQ(profile.slow_ranks(0).rank(), slow) << name;
      EXPECT_NEAR(profile.slow_ranks(0).factor(), 1.3, 0.03) << name;
      EXPECT_LT(ran.WorstError(profile), 0.03) << name;
    }
  }
}

// Context ranks have rows of their own, and so unequal work.
TEST(CalibratedGroupsTest, RanksThatWaitForThoseWithMoreToDoAreNotSlow) {
  for (const Degrees& mesh : kMeshes) {
    v1::JobSpec job = JobOf(mesh);
    CostFactors truth;
    truth.all = 1.5;
    const v1::CostProfile all_slow = ReviseProfile(job.profile(), Architecture::kGpt, truth);
    Ran ran(job, all_slow, 6);
    ran.ReportExchanges([](uint32_t) { return 1.5; });
    const auto fitted = ran.Fit();
    ASSERT_TRUE(fitted.ok() && fitted->has_value()) << NameOf(mesh) << fitted.status();
    EXPECT_THAT((*fitted)->profile.slow_ranks(), IsEmpty()) << (*fitted)->profile.ShortDebugString();
  }
}

TEST(CalibratedGroupsTest, DividedRowsTakeAsManyTimesWhatWasPlannedAsLayersForBeingThere) {
  v1::JobSpec job = JobOf({.pipeline = 2, .context = 4});
  job.mutable_profile()->mutable_layers(0)->mutable_forward()->set_divided_row_ns(200);
  CostFactors truth;
  truth.forward[kDecoder].fixed = 1.7;
  const v1::CostProfile ran_with = ReviseProfile(job.profile(), Architecture::kGpt, truth);
  EXPECT_DOUBLE_EQ(ran_with.layers(0).forward().divided_row_ns(), 340);
  const Ran ran(job, ran_with, 6);
  v1::CostProfile without = ran_with;
  without.mutable_layers(0)->mutable_forward()->clear_divided_row_ns();
  EXPECT_GT(ran.WorstError(without), kRounding);
  const auto fitted = ran.Fit();
  ASSERT_TRUE(fitted.ok() && fitted->has_value()) << fitted.status();
  EXPECT_LT(ran.WorstError((*fitted)->profile), kRounding);
  // A small part of a pass: what is measured says little about it.
  EXPECT_NEAR((*fitted)->profile.layers(0).forward().divided_row_ns(), 340, 34);
}

TEST(CalibratedGroupsTest, ARankThatIsNotSlowAnyMoreIsSaidToBe) {
  const v1::JobSpec job = JobOf({.tensor = 2});
  Ran ran(job, job.profile(), 6);
  ran.ReportExchanges([](uint32_t) { return 1; });
  const auto fitted = Calibrate(ran.planner(), WithSlowRank(job.profile(), 1, 1.3), ran.Observed());
  ASSERT_TRUE(fitted.ok() && fitted->has_value()) << fitted.status();
  EXPECT_THAT((*fitted)->profile.slow_ranks(), IsEmpty());
}

// Its rows are fewer in plans that know of it, and no rank is last in all passes.
TEST(CalibratedGroupsTest, ASlowContextRankStaysNamedWhereItHasLessToDo) {
  for (const Degrees& mesh : {Degrees{.context = 2}, Degrees{.pipeline = 2, .data = 2, .context = 4}}) {
    v1::JobSpec job = JobOf(mesh);
    const v1::CostProfile usual = job.profile();
    *job.mutable_profile() = WithSlowRank(usual, 1, 1.4);
    for (const double now : {1.0, 1.4, 2.0}) {
      const std::string name = absl::StrCat(NameOf(mesh), ", now ", now);
      Ran ran(job, now > 1 ? WithSlowRank(usual, 1, now) : usual, 6);
      // What a plan says of computing has its factor.
      ran.ReportExchanges([&](uint32_t rank) { return rank == 1 ? now / 1.4 : 1; });
      const auto fitted = ran.Fit();
      ASSERT_TRUE(fitted.ok()) << name << fitted.status();
      const v1::CostProfile& profile = fitted->has_value() ? (*fitted)->profile : job.profile();
      EXPECT_LT(ran.WorstError(profile), 0.03) << name << profile.ShortDebugString();
      ASSERT_EQ(profile.slow_ranks_size(), now > 1 ? 1 : 0) << name << profile.ShortDebugString();
      if (now == 1) continue;
      EXPECT_EQ(profile.slow_ranks(0).rank(), 1U) << name;
      EXPECT_NEAR(profile.slow_ranks(0).factor(), now, 0.05) << name;
    }
  }
}

// Who of them is slow nobody knows: none is to have fewer rows.
TEST(CalibratedGroupsTest, WithoutWhatRanksWaitedAllContextRanksOfTheGroupAreNamed) {
  const v1::JobSpec job = JobOf({.data = 2, .context = 2, .tensor = 2});
  const Ran ran(job, WithSlowRank(WithSlowRank(job.profile(), 5, 1.3), 7, 1.3), 6);
  const auto fitted = ran.Fit();
  ASSERT_TRUE(fitted.ok() && fitted->has_value()) << fitted.status();
  const v1::CostProfile& profile = (*fitted)->profile;
  ASSERT_EQ(profile.slow_ranks_size(), 2) << profile.ShortDebugString();
  EXPECT_EQ(profile.slow_ranks(0).rank(), 4U);
  EXPECT_EQ(profile.slow_ranks(1).rank(), 6U);
  EXPECT_EQ(profile.slow_ranks(0).factor(), profile.slow_ranks(1).factor());
  EXPECT_LT(ran.WorstError(profile), 0.03);
}

// Workers that do not say what they waited: the group is slow.
TEST(CalibratedGroupsTest, WithoutWhatRanksWaitedTheFirstOfTheirGroupIsNamed) {
  const v1::JobSpec job = JobOf({.data = 2, .tensor = 2});
  const Ran ran(job, WithSlowRank(job.profile(), 3, 1.3), 6);
  const auto fitted = ran.Fit();
  ASSERT_TRUE(fitted.ok() && fitted->has_value()) << fitted.status();
  ASSERT_EQ((*fitted)->profile.slow_ranks_size(), 1);
  EXPECT_EQ((*fitted)->profile.slow_ranks(0).rank(), 2U);
}

// What comes to a rank's experts nobody plans: who has most of it is not slow.
TEST(CalibratedGroupsTest, WhereRanksDivideExpertsNoneIsTold) {
  v1::JobSpec job = GptJob(1, 1, v1::POLICY_DYNAMIC);
  DivideExperts(job);
  Ran ran(job, job.profile(), 6);
  ran.ReportExchanges([](uint32_t rank) { return rank == 1 ? 1.3 : 1; });
  const auto fitted = ran.Fit();
  ASSERT_TRUE(fitted.ok()) << fitted.status();
  if (!fitted->has_value()) return;
  EXPECT_THAT((*fitted)->profile.slow_ranks(), IsEmpty());
}

// By hand: of two groups of two ranks one rank computes 1.3 times as long.
TEST(CalibratedGroupsTest, EachRankIsComparedWithAllOfItsPosition) {
  const CostModel costs = ModelOf(JobOf({.data = 2, .tensor = 2}));
  std::vector<MeasuredPass> passes = PassesWithSlowRank(costs, /*ranks=*/4, /*of_each=*/5, /*slow=*/3, 1.3);
  const std::vector<SlowRank> slow =
      FindSlowRanks(costs, PassesOf::kRanks, passes, /*before=*/{}, /*peers_alone=*/true);
  ASSERT_EQ(slow.size(), 1U);
  EXPECT_EQ(slow[0].rank, 3);
  EXPECT_NEAR(slow[0].factor, 1.3, 1e-9);
  std::vector<MeasuredPass> usual = passes;
  TakeSlownessOut(slow, costs.topology(), PassesOf::kRanks, &usual);
  for (const MeasuredPass& pass : usual) EXPECT_NEAR(pass.duration_ns, ForetoldNs(costs, pass), 1e-6);
  // All of a group have waited for the slow one.
  TakeSlownessOut(slow, costs.topology(), PassesOf::kGroups, &passes);
  EXPECT_NEAR(passes[10].duration_ns, ForetoldNs(costs, passes[10]) / 1.3, 1e-6) << "of rank 2";
}

}  // namespace
}  // namespace penstock::core
