// Costs fitted to what "was measured": plans that ran on ranks with other costs than those they were planned
// with.
#include "planner/core/calibrate/calibrate.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "planner/core/calibrate/revise_profile.h"
#include "tests/unit/core/job_builder.h"
#include "tests/unit/core/ran_iterations.h"

namespace penstock::core {
namespace {

TEST(CalibrateTest, CostsThatAreRightAreKept) {
  const v1::JobSpec job = GptJob(2, 2, v1::POLICY_DYNAMIC);
  const auto fitted = Ran(job, job.profile(), 4).Fit();
  ASSERT_TRUE(fitted.ok()) << fitted.status();
  EXPECT_FALSE(fitted->has_value());
}

// A rank that has its gradients early waits for the norm of all, and says nothing of what an update takes.
TEST(CalibrateTest, WhatRanksWaitForTheNormOfAllGradientsIsNoOptimizerStep) {
  const v1::JobSpec job = GptJob(4, 1, v1::POLICY_DYNAMIC);
  CostFactors truth;
  truth.all = 1.5;
  const v1::CostProfile ran_with = ReviseProfile(job.profile(), Architecture::kGpt, truth);
  Ran ran(job, ran_with, 4);
  ran.ReportWaitsForNorms();
  const auto fitted = ran.Fit();
  ASSERT_TRUE(fitted.ok() && fitted->has_value()) << fitted.status();
  const double step = ran_with.optimizer_ns_per_parameter_byte();
  EXPECT_NEAR((*fitted)->profile.optimizer_ns_per_parameter_byte(), step, 0.01 * step);
}

struct WrongProfile {
  std::string name;
  CostFactors truth;
};

std::vector<WrongProfile> WrongProfiles() {
  std::vector<WrongProfile> wrong;
  wrong.push_back({.name = "everything is twice as slow", .truth = {}});
  wrong.back().truth.all = 2;
  wrong.push_back({.name = "everything is twice as fast", .truth = {}});
  wrong.back().truth.all = 0.5;
  wrong.push_back({.name = "weight gradients take half", .truth = {}});
  wrong.back().truth.weight_share = 0.5;
  wrong.push_back({.name = "backward passes take half as long again", .truth = {}});
  for (auto& levels : wrong.back().truth.backward_ratio) levels.fill(1.5);
  wrong.push_back({.name = "the head takes three times as long", .truth = {}});
  wrong.back().truth.forward[kHead] = {3, 3, 3};
  wrong.push_back({.name = "attention takes four times as long", .truth = {}});
  wrong.back().truth.forward[kDecoder].squares = 4;
  wrong.push_back({.name = "links are half as fast", .truth = {}});
  wrong.back().truth.links.fill(2);
  wrong.push_back({.name = "the optimizer takes three times as long", .truth = {}});
  wrong.back().truth.optimizer = 3;
  return wrong;
}

TEST(CalibrateTest, AWrongProfileForetellsTheIterationsAfterAFit) {
  for (const WrongProfile& wrong : WrongProfiles()) {
    for (const v1::Schedule schedule : {v1::SCHEDULE_ONE_FORWARD_ONE_BACKWARD, v1::SCHEDULE_SPLIT_BACKWARD}) {
      v1::JobSpec job = GptJob(2, 2, v1::POLICY_DYNAMIC);
      job.mutable_planning()->set_schedule(schedule);
      const Ran ran(job, ReviseProfile(job.profile(), Architecture::kGpt, wrong.truth), 6);
      const auto fitted = ran.Fit();
      ASSERT_TRUE(fitted.ok()) << wrong.name << fitted.status();
      // A part that takes nothing here cannot be wrong.
      if (ran.WorstError(job.profile()) < kRounding && !fitted->has_value()) continue;
      ASSERT_TRUE(fitted->has_value()) << wrong.name << " " << ran.WorstError(job.profile());
      EXPECT_LT(ran.WorstError((*fitted)->profile), kRounding) << wrong.name;
      EXPECT_LT((*fitted)->error_after, (*fitted)->error_before) << wrong.name;
      EXPECT_EQ((*fitted)->profile.version(), job.profile().version() + 1);
    }
  }
}

// Backward passes that take `square_ns` for the square of a length and little for being there, in another
// proportion than forward passes: no factor of a profile without forms of their own says that.
v1::CostProfile WithBackwardOfSquares(v1::CostProfile profile, double square_ns) {
  v1::LayerCost& layer = *profile.mutable_layers(0);
  layer.mutable_backward_input()->set_target_square_ns(square_ns);
  layer.mutable_backward_weight()->set_target_token_ns(10);
  return profile;
}

TEST(CalibrateTest, AFitThatForetellsWorseThanTheCostsInEffectIsDropped) {
  const v1::JobSpec job = GptJob(2, 2, v1::POLICY_DYNAMIC);
  v1::CostProfile truth = WithBackwardOfSquares(job.profile(), 0.2);
  const Ran ran(job, truth, 6);
  const auto fitted = ran.Fit();
  ASSERT_TRUE(fitted.ok() && fitted->has_value()) << fitted.status();
  EXPECT_GT((*fitted)->error_after, kRounding) << (*fitted)->error_before;
  // The same fit, beside costs that are right.
  truth.set_version(job.profile().version() + 1);
  EXPECT_LT(ran.WorstError(truth), 1e-9);
  const auto dropped = Calibrate(ran.planner(), truth, ran.Observed());
  ASSERT_TRUE(dropped.ok()) << dropped.status();
  EXPECT_FALSE(dropped->has_value());
}

// The ranks' plans knew the rank to be slow and gave it less to do: nobody waited for it, so that the costs
// in effect foretell the iterations nearly exactly. It could do more.
TEST(CalibrateTest, AFitThatFindsOtherSpeedsIsKeptIfItIsNotMuchWorse) {
  const v1::JobSpec job = GptJob(1, 2, v1::POLICY_DYNAMIC);
  for (const auto& [square_ns, kept] : {std::pair(0.02, true), std::pair(0.05, false)}) {
    const v1::CostProfile truth = WithBackwardOfSquares(job.profile(), square_ns);
    v1::CostProfile in_effect = WithSlowRank(truth, 1, 1.3);
    in_effect.set_version(job.profile().version() + 1);
    Ran ran(job, truth, 0);
    ran.RunMore(in_effect, truth, 6);
    EXPECT_LT(ran.WorstError(in_effect), 0.003);
    const auto fitted = Calibrate(ran.planner(), in_effect, ran.Observed());
    ASSERT_TRUE(fitted.ok()) << fitted.status();
    ASSERT_EQ(fitted->has_value(), kept) << square_ns;
    if (!kept) continue;
    EXPECT_GT((*fitted)->error_after, (*fitted)->error_before);
    EXPECT_TRUE((*fitted)->profile.slow_ranks().empty());
  }
}

TEST(CalibrateTest, PackedRowsTakeAsManyTimesWhatWasPlannedAsLayersForBeingThere) {
  v1::JobSpec job = GptJob(2, 2, v1::POLICY_DYNAMIC);
  job.mutable_planning()->set_layout(v1::LAYOUT_CHOICE_PACKED);
  v1::LayerTime& layer = *job.mutable_profile()->mutable_layers(0)->mutable_forward();
  layer.set_fixed_ns(400);
  layer.set_packed_row_ns(300);
  CostFactors truth;
  truth.forward[kDecoder].fixed = 3;
  const v1::CostProfile ran_with = ReviseProfile(job.profile(), Architecture::kGpt, truth);
  EXPECT_EQ(ran_with.layers(0).forward().packed_row_ns(), 900);
  const Ran ran(job, ran_with, 6);
  EXPECT_GT(ran.WorstError(job.profile()), kRounding);
  const auto fitted = ran.Fit();
  ASSERT_TRUE(fitted.ok() && fitted->has_value()) << fitted.status();
  EXPECT_LT(ran.WorstError((*fitted)->profile), kRounding);
}

TEST(CalibrateTest, AFactorOfTokensIsFoundOnTopOfATableOfEfficiency) {
  v1::JobSpec job = GptJob(2, 2, v1::POLICY_DYNAMIC);
  SetEfficiency({{20, 1.4}, {100, 0.9}, {600, 1.2}},
                job.mutable_profile()->mutable_layers(0)->mutable_forward());
  CostFactors truth;
  truth.forward[kDecoder].tokens = 1.7;
  const v1::CostProfile ran_with = ReviseProfile(job.profile(), Architecture::kGpt, truth);
  const Ran ran(job, ran_with, 6);
  EXPECT_GT(ran.WorstError(job.profile()), kRounding);
  const auto fitted = ran.Fit();
  ASSERT_TRUE(fitted.ok() && fitted->has_value()) << fitted.status();
  EXPECT_LT(ran.WorstError((*fitted)->profile), kRounding);
  const v1::LayerTime& layer = (*fitted)->profile.layers(0).forward();
  ASSERT_EQ(layer.efficiency_size(), 3);
  EXPECT_EQ(layer.efficiency(1).factor(), 0.9);
}

TEST(CalibrateTest, WhatOfComputingIsReallyWaitingBetweenPassesIsSaid) {
  const v1::JobSpec job = GptJob(2, 2, v1::POLICY_DYNAMIC);
  Ran ran(job, job.profile(), 6);
  ran.AddWaiting(1.25);
  const auto fitted = ran.Fit();
  ASSERT_TRUE(fitted.ok() && fitted->has_value()) << fitted.status();
  EXPECT_LT(ran.WorstError((*fitted)->profile), 0.02);
  EXPECT_NEAR((*fitted)->profile.waiting_share(), 0.2, 0.03);
  // Passes that take longer are no waiting.
  v1::CostProfile slower = job.profile();
  for (v1::LayerCost& layer : *slower.mutable_layers())
    layer.mutable_forward()->set_target_token_ns(2 * layer.forward().target_token_ns());
  const auto of_passes = Ran(job, slower, 6).Fit();
  ASSERT_TRUE(of_passes.ok() && of_passes->has_value()) << of_passes.status();
  EXPECT_LT((*of_passes)->profile.waiting_share(), 0.01);
}

// Single passes that last far longer count less to a fit, but others wait for them.
TEST(CalibrateTest, PassesThatNowAndThenLastFarLongerAreNoWaiting) {
  v1::JobSpec job = GptJob(1, 1, v1::POLICY_PADDING);
  job.mutable_planning()->set_micro_batch_size(1);
  Ran ran(job, job.profile(), 16);
  ran.LengthenEvery(5, 3);
  const auto fitted = ran.Fit();
  ASSERT_TRUE(fitted.ok() && fitted->has_value()) << fitted.status();
  EXPECT_NEAR(ran.ExpectedOverMeasured((*fitted)->profile), 1, 0.02);
  EXPECT_LT((*fitted)->profile.waiting_share(), 0.02);
}

TEST(CalibrateTest, LinksInsideOfNodesAndBetweenThemAreToldApart) {
  v1::JobSpec job = GptJob(4, 1, v1::POLICY_DYNAMIC);
  v1::Cluster& cluster = *job.mutable_profile()->mutable_cluster();
  cluster.set_gpus_per_node(2);
  for (const bool has_speed_between : {true, false}) {
    if (!has_speed_between) cluster.clear_inter_node_bytes_per_second();
    const double before = has_speed_between ? cluster.inter_node_bytes_per_second() : 1e9;
    CostFactors truth;
    truth.links[static_cast<size_t>(Link::kBetweenNodes)] = 8;
    const Ran ran(job, ReviseProfile(job.profile(), Architecture::kGpt, truth), 6);
    EXPECT_GT(ran.WorstError(job.profile()), 0.05);
    const auto fitted = ran.Fit();
    ASSERT_TRUE(fitted.ok() && fitted->has_value()) << fitted.status();
    const v1::Cluster& found = (*fitted)->profile.cluster();
    EXPECT_NEAR(found.intra_node_bytes_per_second(), 1e9, 0.02e9);
    EXPECT_NEAR(found.inter_node_bytes_per_second(), before / 8, 0.02 * before / 8);
    EXPECT_LT(ran.WorstError((*fitted)->profile), kRounding);
  }
}

// Replicas alone, with shares of parameters: nothing else goes over their link. Of several rounds passes hide
// all but what they leave.
TEST(CalibrateTest, LinksThatReshardsAloneGoOverAreMeasuredByThem) {
  for (const double overlap : {0.0, 0.5, 1.0}) {
    for (const bool between_nodes : {false, true}) {
      v1::JobSpec job = GptJob(1, 4, v1::POLICY_DYNAMIC);
      job.mutable_planning()->set_parameter_shares(true);
      job.mutable_profile()->mutable_layers(0)->set_parameter_bytes(8e6);
      v1::Cluster& cluster = *job.mutable_profile()->mutable_cluster();
      cluster.set_exchange_overlap(overlap);
      cluster.set_gpus_per_node(between_nodes ? 2 : 8);
      cluster.set_intra_node_bytes_per_second(1e12);
      cluster.set_inter_node_bytes_per_second(1e12);
      CostFactors truth;
      truth.all = 1.5;
      truth.links.fill(7);
      const Ran ran(job, ReviseProfile(job.profile(), Architecture::kGpt, truth), 6);
      EXPECT_GT(ran.WorstError(job.profile()), 0.2);
      const auto fitted = ran.Fit();
      ASSERT_TRUE(fitted.ok() && fitted->has_value()) << fitted.status();
      const v1::Cluster& found = (*fitted)->profile.cluster();
      EXPECT_NEAR(between_nodes ? found.inter_node_bytes_per_second() : found.intra_node_bytes_per_second(),
                  1e12 / 7, 0.02e12 / 7)
          << "overlap " << overlap;
      EXPECT_LT(ran.WorstError((*fitted)->profile), kRounding) << "overlap " << overlap;
    }
  }
}

// As fast as they are said to be: passes that take longer are no slow link.
TEST(CalibrateTest, ReshardsThatPassesHideMoreOfAreNoOtherLinks) {
  v1::JobSpec job = GptJob(1, 4, v1::POLICY_DYNAMIC);
  job.mutable_planning()->set_parameter_shares(true);
  job.mutable_profile()->mutable_layers(0)->set_parameter_bytes(8e6);
  v1::Cluster& cluster = *job.mutable_profile()->mutable_cluster();
  cluster.set_exchange_overlap(1);
  cluster.set_intra_node_bytes_per_second(1e11);
  for (const double factor : {0.6, 3.0}) {
    CostFactors truth;
    truth.all = factor;
    const auto fitted =
        Ran(job, ReviseProfile(job.profile(), Architecture::kGpt, truth), 6, /*noise=*/0.02).Fit();
    ASSERT_TRUE(fitted.ok() && fitted->has_value()) << fitted.status();
    EXPECT_NEAR((*fitted)->profile.cluster().intra_node_bytes_per_second(), 1e11, 0.03e11) << factor;
  }
}

TEST(CalibrateTest, PartsOfABackwardPassWithClosedFormsOfTheirOwnAreFittedApart) {
  v1::JobSpec job = GptJob(2, 2, v1::POLICY_DYNAMIC);
  job.mutable_planning()->set_schedule(v1::SCHEDULE_SPLIT_BACKWARD);
  v1::LayerCost& layer = *job.mutable_profile()->mutable_layers(0);
  *layer.mutable_backward_input() = layer.forward();
  layer.mutable_backward_input()->set_target_square_ns(2.5 * layer.forward().target_square_ns());
  layer.mutable_backward_weight()->set_target_token_ns(layer.forward().target_token_ns());
  CostFactors truth;
  truth.all = 1.5;
  truth.weight_share = 0.6;
  truth.input_share = 1.3;
  const Ran ran(job, ReviseProfile(job.profile(), Architecture::kGpt, truth), 6);
  EXPECT_GT(ran.WorstError(job.profile()), 0.2);
  const auto fitted = ran.Fit();
  ASSERT_TRUE(fitted.ok() && fitted->has_value()) << fitted.status();
  EXPECT_LT(ran.WorstError((*fitted)->profile), kRounding);
}

TEST(CalibrateTest, TermsOfABackwardPassWithClosedFormsOfItsOwnAreToldApart) {
  for (const v1::Schedule schedule : {v1::SCHEDULE_ONE_FORWARD_ONE_BACKWARD, v1::SCHEDULE_SPLIT_BACKWARD}) {
    v1::JobSpec job = GptJob(2, 1, v1::POLICY_DYNAMIC);
    job.mutable_planning()->set_schedule(schedule);
    v1::LayerCost& layer = *job.mutable_profile()->mutable_layers(0);
    *layer.mutable_backward_input() = layer.forward();
    *layer.mutable_backward_weight() = layer.forward();
    CostFactors truth;
    truth.backward[kDecoder] = {.fixed = 0.5, .tokens = 1, .squares = 3};
    const Ran ran(job, ReviseProfile(job.profile(), Architecture::kGpt, truth), 12);
    EXPECT_GT(ran.WorstError(job.profile()), 0.05);
    const auto fitted = ran.Fit();
    ASSERT_TRUE(fitted.ok() && fitted->has_value()) << fitted.status();
    EXPECT_LT(ran.WorstError((*fitted)->profile), kRounding);
  }
}

TEST(CalibrateTest, AFitForetellsBatchesThatItHasNotSeen) {
  v1::JobSpec job = T5Job(2, 1, v1::POLICY_DYNAMIC);
  CostFactors truth;
  truth.forward[kEncoder] = {2, 1.5, 3};
  truth.forward[kDecoder] = {1, 0.7, 2};
  for (auto& levels : truth.backward_ratio) levels.fill(1.2);
  const v1::CostProfile true_profile = ReviseProfile(job.profile(), Architecture::kT5, truth);
  const auto fitted = Ran(job, true_profile, 8, /*noise=*/0.03).Fit();
  ASSERT_TRUE(fitted.ok() && fitted->has_value()) << fitted.status();
  const Ran unseen(job, true_profile, 20);
  EXPECT_GT(unseen.WorstError(job.profile()), 0.2);
  EXPECT_LT(unseen.WorstError((*fitted)->profile), 0.05);
}

TEST(CalibrateTest, TheSameIterationsGiveTheSameProfile) {
  const v1::JobSpec job = GptJob(2, 2, v1::POLICY_PACKED);
  CostFactors truth;
  truth.all = 1.7;
  const Ran ran(job, ReviseProfile(job.profile(), Architecture::kGpt, truth), 5, 0.05);
  const auto one = ran.Fit();
  const auto other = ran.Fit();
  ASSERT_TRUE(one.ok() && one->has_value() && other.ok() && other->has_value());
  EXPECT_EQ((*one)->profile.SerializeAsString(), (*other)->profile.SerializeAsString());
}

TEST(CalibrateTest, APlanOfAnotherJobIsRefused) {
  const v1::JobSpec job = GptJob(2, 2, v1::POLICY_PACKED);
  const Ran other(GptJob(2, 1, v1::POLICY_PACKED), job.profile(), 2);
  const auto planner = Planner::Create(job);
  ASSERT_TRUE(planner.ok());
  EXPECT_EQ(Calibrate(**planner, job.profile(), other.Observed()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace penstock::core
