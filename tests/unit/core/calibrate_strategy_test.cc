// Costs fitted to iterations that ran on several meshes side by side.
#include "planner/core/strategies/calibrate_strategy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/mesh/mesh_ranks.h"
#include "planner/core/calibrate/durations.h"
#include "planner/core/calibrate/revise_profile.h"
#include "planner/core/contract/plan_of_mesh.h"
#include "planner/core/strategies/mesh_planners.h"
#include "tests/unit/core/ran_iterations.h"

namespace penstock::core {
namespace {

constexpr int kIterations = 6;

// pp 2 x dp 2 + pp 3: ranks 0 to 3 and 4 to 6.
v1::JobSpec JobSideBySide() {
  v1::JobSpec job = GptJob(2, 2, v1::POLICY_DYNAMIC);
  job.mutable_planning()->set_parameter_shares(true);
  job.mutable_planning()->clear_layers_per_stage();
  v1::Strategy* strategy = job.add_strategies();
  *strategy->add_meshes()->mutable_mesh() = MakeMesh(2, 2, 1, 1);
  *strategy->add_meshes()->mutable_mesh() = MakeMesh(3, 1, 1, 1);
  *job.mutable_mesh() = strategy->meshes(0).mesh();
  return job;
}

std::unique_ptr<MeshPlanners> PlannersOf(const v1::JobSpec& job, const v1::Topology* stages = nullptr) {
  return *MeshPlanners::Create(job, 0, Planner::Explain::kCauseAlone, RunSerially, StopToken(), stages);
}

// Iterations whose ranks take what `truth` says, and wait for each other at the end.
class RanSideBySide {
 public:
  RanSideBySide(const v1::JobSpec& job, const v1::CostProfile& truth)
      : job_(job), planners_(PlannersOf(job)), stages_(planners_->topology()) {
    v1::JobSpec true_job = job;
    *true_job.mutable_profile() = truth;
    const std::unique_ptr<MeshPlanners> true_planners = PlannersOf(true_job, &stages_);
    for (int i = 0; i < kIterations; ++i) Run(*true_planners, i);
  }

  absl::StatusOr<std::optional<Calibration>> Fit(const v1::CostProfile& in_effect) const {
    return CalibrateStrategy(job_, 0, stages_, in_effect, observed_, RunSerially);
  }

  // Of the passes of all ranks, by a profile: the largest error.
  double WorstError(const v1::CostProfile& profile) const {
    v1::JobSpec job = job_;
    *job.mutable_profile() = profile;
    const std::unique_ptr<MeshPlanners> planners = PlannersOf(job, &stages_);
    double worst = 0;
    for (const ObservedIteration& iteration : observed_) {
      int64_t longest = 0;
      for (int mesh = 0; mesh < planners->meshes(); ++mesh)
        longest =
            std::max(longest, Simulated(*planners, *iteration.batch, *iteration.plan, mesh).makespan_ns());
      const auto measured = static_cast<double>(iteration.reports[0]->duration_ns());
      worst = std::max(worst, std::abs(static_cast<double>(longest) / measured - 1));
    }
    return worst;
  }

 private:
  static Simulator Simulated(const MeshPlanners& planners, const v1::Batch& batch, const v1::Plan& plan,
                             int mesh) {
    const Planner& planner = planners.planner(mesh);
    const v1::Plan part = PlanOfMesh(plan, mesh);
    ProgramSet programs = *ProgramSetOfPlan(part);
    EXPECT_TRUE(SetDurations(part, *BatchFromProto(batch, planner.job()), planner.costs(), &programs).ok());
    Simulator simulator;
    EXPECT_TRUE(simulator.Run(programs).ok());
    return simulator;
  }

  void Run(const MeshPlanners& truth, int number) {
    const v1::Batch& batch = batches_.emplace_back(RandomBatch(number, 24));
    const v1::Plan& plan = plans_.emplace_back(*planners_->MakePlan(batch, RunSerially, StopToken()));
    ObservedIteration iteration;
    iteration.batch = &batch;
    iteration.plan = &plan;
    int64_t longest = 0;
    const size_t first = reports_.size();
    for (int mesh = 0; mesh < truth.meshes(); ++mesh) {
      const MeshRange range = RangeOfMesh(plan, mesh);
      const Simulator simulator = Simulated(truth, batch, plan, mesh);
      longest = std::max(longest, simulator.makespan_ns());
      size_t at = 0;
      for (int rank = range.first_rank; rank < range.first_rank + range.ranks; ++rank) {
        v1::ReportIterationRequest& report = reports_.emplace_back();
        report.set_rank(static_cast<uint32_t>(rank));
        for (int i = 0; i < plan.programs(rank).instructions_size(); ++i, ++at) {
          v1::MeasuredInstruction* measured = report.add_instructions();
          measured->set_id(static_cast<uint32_t>(i));
          measured->set_start_ns(simulator.start_ns()[at]);
          measured->set_duration_ns(simulator.end_ns()[at] - simulator.start_ns()[at]);
        }
      }
    }
    for (size_t i = first; i < reports_.size(); ++i) {
      reports_[i].set_duration_ns(longest);
      iteration.reports.push_back(&reports_[i]);
    }
    observed_.push_back(iteration);
  }

  const v1::JobSpec job_;
  const std::unique_ptr<MeshPlanners> planners_;
  const v1::Topology stages_;
  std::deque<v1::Batch> batches_;
  std::deque<v1::Plan> plans_;
  std::deque<v1::ReportIterationRequest> reports_;
  std::vector<ObservedIteration> observed_;
};

TEST(CalibrateStrategyTest, AProfileThatIsWrongForetellsIterationsOnMeshesSideBySideAfterAFit) {
  const v1::JobSpec job = JobSideBySide();
  for (const double factor : {0.5, 2.0}) {
    CostFactors factors;
    factors.all = factor;
    const v1::CostProfile truth = ReviseProfile(job.profile(), Architecture::kGpt, factors);
    const RanSideBySide ran(job, truth);
    EXPECT_GT(ran.WorstError(job.profile()), 0.3) << factor;
    const auto fitted = ran.Fit(job.profile());
    ASSERT_TRUE(fitted.ok() && fitted->has_value()) << factor << fitted.status();
    EXPECT_LT(ran.WorstError((*fitted)->profile), 0.03) << factor;
    EXPECT_EQ((*fitted)->profile.version(), job.profile().version() + 1);
  }
}

// The others wait for its mesh. It keeps its own number, and what is known of the other mesh stays.
TEST(CalibrateStrategyTest, ASlowRankOfOneOfTheMeshesIsFound) {
  const v1::JobSpec job = JobSideBySide();
  const v1::CostProfile in_effect = WithSlowRank(job.profile(), 5, 1.2);
  const v1::CostProfile truth = WithSlowRank(in_effect, 2, 3);
  const RanSideBySide ran(job, truth);
  const auto fitted = ran.Fit(in_effect);
  ASSERT_TRUE(fitted.ok() && fitted->has_value()) << fitted.status();
  const v1::CostProfile& profile = (*fitted)->profile;
  ASSERT_EQ(profile.slow_ranks_size(), 2) << profile.ShortDebugString();
  EXPECT_EQ(profile.slow_ranks(0).rank(), 2U);
  EXPECT_NEAR(profile.slow_ranks(0).factor(), 3, 0.1);
  EXPECT_EQ(profile.slow_ranks(1).rank(), 5U);
  EXPECT_EQ(profile.slow_ranks(1).factor(), 1.2);
}

TEST(CalibrateStrategyTest, CostsThatAreRightStay) {
  const v1::JobSpec job = JobSideBySide();
  const auto fitted = RanSideBySide(job, job.profile()).Fit(job.profile());
  ASSERT_TRUE(fitted.ok()) << fitted.status();
  EXPECT_FALSE(fitted->has_value());
}

}  // namespace
}  // namespace penstock::core
