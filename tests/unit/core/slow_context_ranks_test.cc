// Stage groups of several context ranks of which some are slow: they get fewer rows, so that their group is
// faster than with as many for each.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/core/contract/job_from_proto.h"
#include "planner/core/contract/profile_from_proto.h"
#include "planner/core/cost/slow_groups.h"
#include "planner/core/stages/group_as_rank.h"
#include "tests/unit/core/group_jobs.h"
#include "tests/unit/core/job_builder.h"
#include "tests/unit/core/ran_iterations.h"
#include "tests/unit/core/sound_plan.h"

namespace penstock::core {
namespace {

struct SlowCase {
  uint32_t pipeline = 1;
  uint32_t data = 1;
  uint32_t context = 1;
  uint32_t tensor = 1;
  uint32_t slow = 0;
  double factor = 1;

  std::string Name() const {
    return absl::StrCat("pp ", pipeline, " dp ", data, " cp ", context, " tp ", tensor, ", rank ", slow, " ",
                        factor, " times");
  }
};

v1::JobSpec JobOf(const SlowCase& of) {
  v1::JobSpec job = GptJob(of.pipeline, of.data, v1::POLICY_DYNAMIC);
  SetGroup(of.context, of.tensor, &job);
  return job;
}

v1::JobSpec WithSlow(v1::JobSpec job, const SlowCase& of) {
  *job.mutable_profile() = WithSlowRank(job.profile(), of.slow, of.factor);
  return job;
}

v1::Plan PlanOf(const v1::JobSpec& job, const v1::Batch& batch) {
  return *(*Planner::Create(job))->MakePlan(batch);
}

// What a plan takes with the profile of another job.
int64_t MakespanOf(const v1::Plan& plan, const v1::Batch& batch, const v1::JobSpec& job) {
  const auto planner = *Planner::Create(job);
  ProgramSet programs = *ProgramSetOfPlan(plan);
  EXPECT_TRUE(SetDurations(plan, *BatchFromProto(batch, planner->job()), planner->costs(), &programs).ok());
  Simulator simulator;
  EXPECT_TRUE(simulator.Run(programs).ok());
  return simulator.makespan_ns();
}

// What the passes of a rank would take alone if it were not slow.
double WorkOf(const v1::Plan& plan, uint32_t rank, double factor) {
  double work = 0;
  for (const v1::Instruction& instruction : plan.programs(static_cast<int>(rank)).instructions())
    work += static_cast<double>(instruction.own_duration_ns()) / factor;
  return work;
}

TEST(SlowContextRanksTest, OneHasLessToDoAndTheIterationIsShorterThanWithEqualRows) {
  const v1::Batch batch = RandomBatch(3, 48);
  for (const uint32_t context : {2U, 4U}) {
    for (const uint32_t slow : {0U, context - 1}) {
      for (const double factor : {1.3, 2.0}) {
        const SlowCase of = {.context = context, .slow = slow, .factor = factor};
        const v1::JobSpec usual = JobOf(of);
        const v1::Plan plan = SoundPlanOf(WithSlow(usual, of), batch);
        // By its speed it would have 1 / (factor * (contexts - 1) + 1).
        double others = 0;
        for (uint32_t rank = 0; rank < context; ++rank)
          others += rank == slow ? 0 : WorkOf(plan, rank, 1) / (context - 1);
        EXPECT_LT(WorkOf(plan, slow, factor), (1 - 0.7 * (1 - 1 / factor)) * others) << of.Name();
        // Of what equal rows lose nearly all that can be had.
        const v1::Plan even = PlanOf(usual, batch);
        const auto undisturbed = static_cast<double>(even.predicted().makespan_ns());
        const auto with_equal_rows = static_cast<double>(MakespanOf(even, batch, WithSlow(usual, of)));
        const double speed = (context - 1 + 1 / factor) / context;
        EXPECT_LT(static_cast<double>(plan.predicted().makespan_ns()),
                  undisturbed / speed + 0.25 * (with_equal_rows - undisturbed / speed))
            << of.Name();
      }
    }
  }
}

TEST(SlowContextRanksTest, AReplicaThatHasOneIsGivenAsMuchAsItsRanksCanDoTogether) {
  const v1::Batch batch = RandomBatch(5, 64);
  const SlowCase of = {.data = 2, .context = 4, .slow = 5, .factor = 2};
  const v1::JobSpec usual = JobOf(of);
  const v1::Plan plan = SoundPlanOf(WithSlow(usual, of), batch);
  double healthy = 0, disturbed = 0;
  for (uint32_t rank = 0; rank < 8; ++rank)
    (rank < 4 ? healthy : disturbed) += WorkOf(plan, rank, rank == of.slow ? of.factor : 1);
  // With equal rows it would be half.
  EXPECT_GT(disturbed / healthy, 0.75);
  EXPECT_LT(disturbed / healthy, 1);
}

// A micro-batch has one placement for all positions, of which one has the slow rank.
TEST(SlowContextRanksTest, PlansOfPipelinesAreHardlyEverLongerThanWithEqualRows) {
  const v1::Batch batch = RandomBatch(7, 48);
  std::vector<double> ratios;
  for (const SlowCase& of : {SlowCase{.pipeline = 2, .context = 2, .slow = 1, .factor = 1.3},
                             SlowCase{.pipeline = 4, .context = 2, .slow = 4, .factor = 2},
                             SlowCase{.pipeline = 4, .context = 2, .slow = 3, .factor = 1.5},
                             SlowCase{.pipeline = 2, .data = 2, .context = 2, .slow = 6, .factor = 1.5},
                             SlowCase{.pipeline = 2, .context = 2, .tensor = 2, .slow = 5, .factor = 2}}) {
    v1::JobSpec usual = JobOf(of);
    const v1::Plan even = PlanOf(usual, batch);
    // Stages that are chosen for the slow rank are another matter.
    *usual.mutable_planning()->mutable_layers_per_stage() = even.options().layers_per_stage();
    const v1::Plan plan = SoundPlanOf(WithSlow(usual, of), batch);
    const int64_t with_equal_rows = MakespanOf(even, batch, WithSlow(usual, of));
    const double ratio =
        static_cast<double>(plan.predicted().makespan_ns()) / static_cast<double>(with_equal_rows);
    std::cout << of.Name() << ": " << ratio << " of what equal rows take\n";
    ratios.push_back(ratio);
  }
  EXPECT_LT(std::ranges::max(ratios), 1.05) << "searches differ by as much";
  EXPECT_LT(std::accumulate(ratios.begin(), ratios.end(), 0.0) / static_cast<double>(ratios.size()), 0.97);
}

TEST(SlowContextRanksTest, PassesOfAGroupTakeAsLongAsOnTheContextRankThatIsLast) {
  const SlowCase of = {.context = 2, .slow = 1, .factor = 1.5};
  const v1::Plan plan = SoundPlanOf(WithSlow(JobOf(of), of), RandomBatch(9, 24));
  const v1::Program& first = plan.programs(0);
  for (int i = 0; i < first.instructions_size(); ++i) {
    if (first.instructions(i).own_duration_ns() == 0) continue;
    EXPECT_EQ(first.instructions(i).expected_duration_ns(),
              std::max(first.instructions(i).own_duration_ns(),
                       plan.programs(1).instructions(i).own_duration_ns()));
  }
}

// By hand: of two context ranks of two tensor ranks each, one tensor rank of the second is slow.
TEST(SlowGroupsTest, AContextRankIsAsSlowAsTheSlowestOfItsTensorRanks) {
  const SlowCase of = {.pipeline = 2, .context = 2, .tensor = 2};
  const Topology topology = (*Planner::Create(JobOf(of)))->job().topology;
  const std::vector<SlowRank> ranks = {{6, 2}, {7, 3}};
  const SlowGroups slow(ranks, topology);
  EXPECT_EQ(slow.FactorOf(0, 0), 1);
  EXPECT_EQ(slow.FactorOf(0, 1), 3);
  EXPECT_EQ(slow.FactorOf(0, 1, 0), 1);
  EXPECT_EQ(slow.FactorOf(0, 1, 1), 3);
  EXPECT_DOUBLE_EQ(slow.SpeedOf(0, 1), (1 + 1.0 / 3) / 2);
  EXPECT_EQ(slow.SpeedOf(0, 0), 1);
  EXPECT_TRUE(slow.IsUneven(0));
  EXPECT_EQ(slow.Slowed(7, 0, 1, 0), 7);
  EXPECT_EQ(slow.Slowed(7, 0, 1, 1), 21);
}

TEST(SlowGroupsTest, WhereStagesAreChosenAGroupIsAsFastAsItsContextRanksTogether) {
  const auto slow_of = [](const SlowCase& of) {
    const v1::JobSpec spec = WithSlow(JobOf(of), of);
    return ProfileOfGroup(*ProfileFromProto(spec.profile(), Architecture::kGpt), *JobFromProto(spec))
        .slow_ranks;
  };
  const std::vector<SlowRank> context = slow_of({.pipeline = 2, .context = 2, .slow = 3, .factor = 1.5});
  ASSERT_EQ(context.size(), 1u);
  EXPECT_EQ(context[0].rank, 1);
  EXPECT_DOUBLE_EQ(context[0].factor, 1.2);
  const std::vector<SlowRank> tensor = slow_of({.pipeline = 2, .tensor = 2, .slow = 3, .factor = 1.5});
  ASSERT_EQ(tensor.size(), 1u);
  EXPECT_DOUBLE_EQ(tensor[0].factor, 1.5);
}

TEST(SlowGroupsTest, WhereRanksDivideExpertsAllOfAGroupAreAsSlowAsTheSlowest) {
  v1::JobSpec job = GptJob(1, 1, v1::POLICY_DYNAMIC);
  DivideExperts(job);
  const Topology topology = (*Planner::Create(job))->job().topology;
  const std::vector<SlowRank> ranks = {{1, 2}};
  const SlowGroups slow(ranks, topology);
  EXPECT_EQ(slow.FactorOf(0, 0, 0), 2);
  EXPECT_EQ(slow.FactorOf(0, 0, 1), 2);
  EXPECT_FALSE(slow.IsUneven(0));
}

}  // namespace
}  // namespace penstock::core
