// How uneven a router is, found by a fit.
#include <gtest/gtest.h>

#include <cstdint>

#include "planner/core/calibrate/revise_profile.h"
#include "tests/unit/core/job_builder.h"
#include "tests/unit/core/ran_iterations.h"

namespace penstock::core {
namespace {

// Over four ranks.
v1::JobSpec ExpertsJob() {
  v1::JobSpec job = GptJob(1, 1, v1::POLICY_DYNAMIC);
  job.mutable_mesh()->set_context(4);
  job.mutable_mesh()->set_expert(4);
  v1::ModelSpec& model = *job.mutable_model();
  model.set_experts(4);
  model.set_experts_per_token(2);
  model.set_feed_forward_biases(v1::BIASES_NONE);
  return job;
}

// Its first stage is a layer without experts, the second one has some in all layers.
v1::JobSpec SomeExpertsJob() {
  v1::JobSpec job = ExpertsJob();
  job.mutable_mesh()->set_pipeline(2);
  job.mutable_planning()->add_layers_per_stage(1);
  job.mutable_planning()->add_layers_per_stage(7);
  job.mutable_model()->add_dense_layers(1);
  v1::LayerCost dense = job.profile().layers(0);
  dense.set_name("dense");
  *job.mutable_profile()->add_layers() = dense;
  return job;
}

v1::CostProfile WithExpertLoad(v1::CostProfile profile, uint32_t ranks, double fullest) {
  v1::ExpertLoad* const load = profile.add_expert_loads();
  load->set_ranks(ranks);
  load->set_fullest(fullest);
  return profile;
}

TEST(CalibrateTest, AnUnevenRouterIsFoundAndTheCostsOfLayersStayWhatTheyAre) {
  const v1::JobSpec job = ExpertsJob();
  // The fullest have 40 and 30 of 80 rows in two layers: 70 where 40 would be even.
  const v1::CostProfile truth = WithExpertLoad(job.profile(), 4, 1.75);
  Ran ran(job, truth, 6);
  ran.ReportExpertRows({{40, 10}, {20, 30}, {10, 20}, {10, 20}});
  const auto fitted = ran.Fit();
  ASSERT_TRUE(fitted.ok() && fitted->has_value()) << fitted.status();
  const v1::CostProfile& profile = (*fitted)->profile;
  ASSERT_EQ(profile.expert_loads_size(), 1) << profile.ShortDebugString();
  EXPECT_EQ(profile.expert_loads(0).ranks(), 4U);
  EXPECT_DOUBLE_EQ(profile.expert_loads(0).fullest(), 1.75);
  EXPECT_LT(ran.WorstError(profile), kRounding);
  EXPECT_NEAR(profile.layers(0).forward().target_token_ns(),
              job.profile().layers(0).forward().target_token_ns(),
              0.02 * job.profile().layers(0).forward().target_token_ns());
}

TEST(CalibrateTest, ARouterThatHasBecomeEvenIsSaidToBe) {
  v1::JobSpec job = ExpertsJob();
  const v1::CostProfile truth = job.profile();
  *job.mutable_profile() = WithExpertLoad(WithExpertLoad(truth, 2, 1.5), 4, 3);
  Ran ran(job, truth, 6);
  ran.ReportExpertRows({{20}, {20}, {20}, {20}});
  const auto fitted = ran.Fit();
  ASSERT_TRUE(fitted.ok() && fitted->has_value()) << fitted.status();
  const v1::CostProfile& profile = (*fitted)->profile;
  ASSERT_EQ(profile.expert_loads_size(), 2);
  EXPECT_EQ(profile.expert_loads(0).fullest(), 1.5) << "of another number of ranks";
  EXPECT_EQ(profile.expert_loads(1).fullest(), 1);
  EXPECT_LT(ran.WorstError(profile), kRounding);
}

TEST(CalibrateTest, StagesWithoutExpertsHaveNoRowsToReport) {
  const v1::JobSpec job = SomeExpertsJob();
  Ran ran(job, WithExpertLoad(job.profile(), 4, 1.5), 6);
  ran.ReportExpertRows({{}, {}, {}, {}, {30}, {10}, {20}, {20}});
  const auto fitted = ran.Fit();
  ASSERT_TRUE(fitted.ok() && fitted->has_value()) << fitted.status();
  ASSERT_EQ((*fitted)->profile.expert_loads_size(), 1);
  EXPECT_DOUBLE_EQ((*fitted)->profile.expert_loads(0).fullest(), 1.5);
}

TEST(CalibrateTest, LayersWithoutExpertsHaveFactorsOfTheirOwn) {
  const v1::JobSpec job = SomeExpertsJob();
  CostFactors slower;
  slower.forward[kDense] = {1.6, 1.6, 1.6};
  const v1::CostProfile truth = ReviseProfile(job.profile(), Architecture::kGpt, slower);
  EXPECT_DOUBLE_EQ(truth.layers(2).forward().target_token_ns(),
                   1.6 * job.profile().layers(2).forward().target_token_ns());
  EXPECT_EQ(truth.layers(0).forward().target_token_ns(), job.profile().layers(0).forward().target_token_ns());
  Ran ran(job, truth, 8);
  const auto fitted = ran.Fit();
  ASSERT_TRUE(fitted.ok() && fitted->has_value()) << fitted.status();
  EXPECT_LT(ran.WorstError((*fitted)->profile), 0.05);
}

TEST(CalibrateTest, RanksThatReportNoRowsLeaveTheLoadAsItIs) {
  v1::JobSpec job = ExpertsJob();
  *job.mutable_profile() = WithExpertLoad(job.profile(), 4, 2);
  CostFactors slower;
  slower.all = 1.5;
  Ran ran(job, ReviseProfile(job.profile(), Architecture::kGpt, slower), 6);
  ran.ReportExpertRows({{20}, {20}, {20}, {}});
  const auto fitted = ran.Fit();
  ASSERT_TRUE(fitted.ok() && fitted->has_value()) << fitted.status();
  EXPECT_EQ((*fitted)->profile.expert_loads(0).fullest(), 2);
}

}  // namespace
}  // namespace penstock::core
