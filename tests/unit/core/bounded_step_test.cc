// How far costs move from one version to the next.
#include "planner/core/calibrate/bounded_step.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "planner/core/calibrate/revise_profile.h"
#include "tests/unit/core/followed_costs.h"
#include "tests/unit/core/job_builder.h"

namespace penstock::core {
namespace {

v1::JobSpec TwoByTwo() { return GptJob(2, 2, v1::POLICY_DYNAMIC); }

// Computing takes so many times as long.
v1::CostProfile Slower(const v1::CostProfile& profile, double factor) {
  CostFactors factors;
  factors.all = factor;
  return ReviseProfile(profile, Architecture::kGpt, factors);
}

double TokenNs(const v1::CostProfile& profile) { return profile.layers(0).forward().target_token_ns(); }

TEST(BoundedStepTest, EveryCostIsWithinAFactorOfTwoOfTheVersionBefore) {
  v1::CostProfile before = TwoByTwo().profile();
  before.mutable_embedding_forward()->set_target_token_ns(2);
  before.mutable_layers(0)->mutable_forward()->set_divided_row_ns(0.7);
  before.set_optimizer_fixed_ns(300);
  before.mutable_layers(0)->mutable_backward_input()->set_target_token_ns(8);
  before.mutable_layers(0)->mutable_backward_weight()->set_target_token_ns(6);
  for (const double by : {5.0, 0.2}) {
    CostFactors factors;
    for (ForwardFactors& forward : factors.forward) forward = {by, by, by};
    for (auto& levels : factors.backward_ratio) levels.fill(by);
    factors.embedding = factors.optimizer = by;
    factors.links.fill(by);
    const double bounded = by > 1 ? kMostStep : 1 / kMostStep;
    const v1::CostProfile step = BoundedStep(before, ReviseProfile(before, Architecture::kGpt, factors));
    for (int i = 0; i < before.layers_size(); ++i) {
      const v1::LayerCost& was = before.layers(i);
      const v1::LayerCost& is = step.layers(i);
      EXPECT_DOUBLE_EQ(is.forward().fixed_ns(), bounded * was.forward().fixed_ns());
      EXPECT_DOUBLE_EQ(is.forward().target_token_ns(), bounded * was.forward().target_token_ns());
      EXPECT_DOUBLE_EQ(is.forward().target_square_ns(), bounded * was.forward().target_square_ns());
      EXPECT_DOUBLE_EQ(is.backward_ratio_none(), bounded * was.backward_ratio_none());
    }
    EXPECT_DOUBLE_EQ(step.layers(0).forward().divided_row_ns(), bounded * 0.7);
    EXPECT_DOUBLE_EQ(step.layers(0).backward_input().target_token_ns(), bounded * 8);
    EXPECT_DOUBLE_EQ(step.layers(0).backward_weight().target_token_ns(), bounded * 6);
    EXPECT_DOUBLE_EQ(step.embedding_forward().target_token_ns(), bounded * 2);
    EXPECT_DOUBLE_EQ(step.optimizer_ns_per_parameter_byte(),
                     bounded * before.optimizer_ns_per_parameter_byte());
    EXPECT_DOUBLE_EQ(step.optimizer_fixed_ns(), bounded * 300);
    EXPECT_DOUBLE_EQ(step.cluster().intra_node_bytes_per_second(),
                     before.cluster().intra_node_bytes_per_second() / bounded);
    EXPECT_DOUBLE_EQ(step.cluster().inter_node_bytes_per_second(),
                     before.cluster().inter_node_bytes_per_second() / bounded);
    EXPECT_EQ(step.cluster().inter_node_latency_ns(), bounded * 500);
  }
}

// All but the tokens at which half of the speed is reached, which is no time.
TEST(BoundedStepTest, NoTermOfALayersTimeIsForgotten) {
  const google::protobuf::Descriptor* const terms = v1::LayerTime::descriptor();
  for (int i = 0; i < terms->field_count(); ++i) {
    const google::protobuf::FieldDescriptor* const term = terms->field(i);
    if (term->is_repeated() || term->number() == v1::LayerTime::kHalfEfficiencyTokensFieldNumber) continue;
    v1::CostProfile before = TwoByTwo().profile();
    v1::CostProfile revised = before;
    const google::protobuf::Reflection& values = *v1::LayerTime::GetReflection();
    values.SetDouble(before.mutable_layers(0)->mutable_forward(), term, 3);
    values.SetDouble(revised.mutable_layers(0)->mutable_forward(), term, 30);
    const v1::CostProfile step = BoundedStep(before, revised);
    EXPECT_DOUBLE_EQ(values.GetDouble(step.layers(0).forward(), term), 3 * kMostStep) << term->name();
  }
}

TEST(BoundedStepTest, CostsThatAreNearStayAsTheyWereFittedAndSoDoRanksThatAreSlow) {
  const v1::CostProfile before = TwoByTwo().profile();
  const v1::CostProfile revised = WithSlowRank(Slower(before, 1.9), 1, 8);
  v1::CostProfile step = BoundedStep(before, revised);
  EXPECT_EQ(step.SerializeAsString(), revised.SerializeAsString());
}

TEST(BoundedStepTest, BothPartsOfABackwardPassAreBounded) {
  v1::CostProfile before = TwoByTwo().profile();
  before.mutable_layers(0)->set_backward_input_share(0.1);
  v1::CostProfile revised = before;
  for (const auto& [share, bounded] : {std::pair(0.9, 0.2), std::pair(0.15, 0.15), std::pair(0.02, 0.05)}) {
    revised.mutable_layers(0)->set_backward_input_share(share);
    EXPECT_NEAR(BoundedStep(before, revised).layers(0).backward_input_share(), bounded, 1e-12);
  }
}

TEST(BoundedStepTest, WaitingGrowsWithTheComputingThatItIsCountedAs) {
  v1::CostProfile before = TwoByTwo().profile();
  before.set_waiting_share(0.2);
  v1::CostProfile revised = before;
  revised.set_waiting_share(0.75);
  // 1.25 times, and then 2.5 times what passes take.
  EXPECT_DOUBLE_EQ(BoundedStep(before, revised).waiting_share(), 0.6);
  revised.set_waiting_share(0.1);
  EXPECT_DOUBLE_EQ(BoundedStep(before, revised).waiting_share(), 0.1);
}

TEST(BoundedStepTest, LinksBetweenNodesThatWereAsFastAsThoseInsideAreBoundedByThese) {
  v1::CostProfile before = TwoByTwo().profile();
  before.mutable_cluster()->clear_inter_node_bytes_per_second();
  v1::CostProfile revised = before;
  revised.mutable_cluster()->set_inter_node_bytes_per_second(1e8);
  EXPECT_DOUBLE_EQ(BoundedStep(before, revised).cluster().inter_node_bytes_per_second(), 5e8);
  EXPECT_EQ(BoundedStep(before, before).cluster().inter_node_bytes_per_second(), 0);
}

TEST(FollowedCostsTest, AProfileThatIsWrongByFourIsRightAfterTheFirstFit) {
  for (const double wrong : {4.0, 0.25}) {
    const v1::JobSpec job = TwoByTwo();
    const v1::CostProfile truth = Slower(job.profile(), wrong);
    FollowedCosts costs(job);
    costs.Train(truth, 4);
    EXPECT_NEAR(TokenNs(costs.versions().back()), TokenNs(truth), 0.02 * TokenNs(truth));
    costs.Train(truth, 16);
    EXPECT_LT(costs.WorstErrorAhead(truth), 0.02) << wrong;
  }
}

TEST(FollowedCostsTest, AMachineThatBecomesFiveTimesSlowerIsFollowedInThreeVersions) {
  const v1::JobSpec job = TwoByTwo();
  const v1::CostProfile usual = Slower(job.profile(), 1.5);
  FollowedCosts costs(job);
  costs.Train(usual, 8);
  const size_t before = costs.versions().size() - 1;
  const v1::CostProfile slow = Slower(usual, 5);
  costs.Train(slow, 20);
  const std::vector<v1::CostProfile>& versions = costs.versions();
  ASSERT_GE(versions.size(), before + 4);
  for (size_t i = before + 1; i < versions.size(); ++i) {
    const double step = TokenNs(versions[i]) / TokenNs(versions[i - 1]);
    EXPECT_LE(step, kMostStep + 1e-9) << i;
    EXPECT_GE(step, 1 / kMostStep - 1e-9) << i;
  }
  EXPECT_NEAR(TokenNs(versions[before + 3]), TokenNs(slow), 0.05 * TokenNs(slow));
  EXPECT_LT(costs.WorstErrorAhead(slow), 0.02);
}

TEST(FollowedCostsTest, IterationsInWhichTheMachineDidSomethingElseAreForgottenByTheNextFits) {
  const v1::JobSpec job = TwoByTwo();
  FollowedCosts costs(job);
  const v1::CostProfile usual = Slower(job.profile(), 1.5);
  costs.Train(usual, 8);
  costs.Train(Slower(usual, 20), 8);
  EXPECT_LE(TokenNs(costs.versions().back()), 4 * TokenNs(usual) + 1e-9);
  costs.Train(usual, 16);
  EXPECT_NEAR(TokenNs(costs.versions().back()), TokenNs(usual), 0.02 * TokenNs(usual));
  EXPECT_LT(costs.WorstErrorAhead(usual), 0.02);
}

}  // namespace
}  // namespace penstock::core
