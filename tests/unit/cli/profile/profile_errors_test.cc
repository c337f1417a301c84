#include "planner/cli/profile/profile_errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "planner/core/calibrate/training_factor.h"
#include "tests/unit/cli/profile/some_profile.h"

namespace penstock::cli {
namespace {

using ::testing::HasSubstr;

// The layer of SomeProfile takes 1 ms and 1 us a token, its backward pass twice as long, half of it each for
// inputs and weights; the head 2 us a token that is learnt.
HeldOutPass Forward(uint32_t tokens, double ns) {
  return {.part = HeldOutPart::kLayer, .packed = true, .samples = {{0, tokens}}, .duration_ns = ns};
}

const ErrorDistribution& Of(const ProfileErrors& errors, const std::string& of) {
  static const ErrorDistribution kNone;
  for (const ErrorDistribution& distribution : errors.distributions)
    if (distribution.of == of) return distribution;
  ADD_FAILURE() << of;
  return kNone;
}

TEST(ProfileErrors, AreOfWhatIsForetoldByWhatWasMeasured) {
  HeldOutTimes times;
  for (const double measured : {1.1e6, 1.0e6, 2.2e6}) times.passes.push_back(Forward(100, measured));
  const auto errors = ErrorsOf(SomeProfile(), times);
  ASSERT_TRUE(errors.ok()) << errors.status();
  const ErrorDistribution& all = errors->distributions.front();
  EXPECT_EQ(all.of, "all");
  EXPECT_EQ(all.passes, 3U);
  EXPECT_NEAR(all.median, 0.1, 1e-9);
  EXPECT_NEAR(all.worst, 0.5, 1e-9);
  EXPECT_NEAR(all.of_time, 1.2 / 4.3, 1e-9);
  EXPECT_NEAR(all.median_bias, 0, 1e-9);
  EXPECT_NEAR(errors->worst.foretold_ns, 1.1e6, 1);
  EXPECT_NEAR(errors->worst.pass.duration_ns, 2.2e6, 1);
}

// Held-out passes are measured by workers that do not train.
TEST(ProfileErrors, AreOfPassesAloneWhereTimesAreThoseOfTraining) {
  v1::ProfileFile file = SomeProfile();
  *file.mutable_alone() = file.profile();
  *file.mutable_profile() = core::WithTrainingFactor(file.alone(), core::Architecture::kGpt, /*factor=*/1.25);
  HeldOutTimes times;
  times.passes.push_back(Forward(100, 1.1e6));
  const auto errors = ErrorsOf(file, times);
  ASSERT_TRUE(errors.ok()) << errors.status();
  EXPECT_NEAR(errors->worst.foretold_ns, 1.1e6, 1);
}

TEST(ProfileErrors, AreToldByKindOfPass) {
  HeldOutTimes times;
  HeldOutPass pass = Forward(1000, 4e6);
  pass.kind = HeldOutKind::kBackward;
  times.passes.push_back(pass);
  pass.recompute = HeldOutRecompute::kFull;
  pass.duration_ns = 8e6;
  times.passes.push_back(pass);
  pass.recompute = HeldOutRecompute::kNone;
  pass.kind = HeldOutKind::kBackwardInput;
  pass.duration_ns = 2.5e6;
  times.passes.push_back(pass);
  pass.kind = HeldOutKind::kBackwardWeight;
  pass.duration_ns = 1e6;
  times.passes.push_back(pass);
  // As long backward as forward.
  times.passes.push_back({.part = HeldOutPart::kHead,
                          .kind = HeldOutKind::kBoth,
                          .packed = true,
                          .samples = {{0, 1000}},
                          .loss_tokens = 500,
                          .duration_ns = 2e6});
  const auto errors = ErrorsOf(SomeProfile(), times);
  ASSERT_TRUE(errors.ok()) << errors.status();
  EXPECT_NEAR(Of(*errors, "no recompute").worst, 0, 1e-9);
  EXPECT_NEAR(Of(*errors, "full recompute").worst, 0.25, 1e-9);
  EXPECT_NEAR(Of(*errors, "dX (backward, inputs)").worst, 0.2, 1e-9);
  EXPECT_NEAR(Of(*errors, "dW (backward, weights)").median_bias, 1, 1e-9);
  EXPECT_NEAR(Of(*errors, "head").worst, 0, 1e-9);
  EXPECT_EQ(Of(*errors, "256 to 1,023 tokens").passes, 5U);
}

TEST(ProfileErrors, OfPaddedRowsCountThePadding) {
  HeldOutTimes times;
  times.passes.push_back(
      {.part = HeldOutPart::kLayer, .packed = false, .samples = {{0, 50}, {0, 50}}, .duration_ns = 1.1e6});
  const auto errors = ErrorsOf(SomeProfile(), times);
  ASSERT_TRUE(errors.ok()) << errors.status();
  EXPECT_NEAR(errors->distributions.front().worst, 0, 1e-9);
  EXPECT_THAT(ToText(*errors), HasSubstr("layer, forward, padded, 2 samples, 100 tokens"));
}

TEST(ProfileErrors, OfSharesOfContextRanksCountTheTokensOfTheRank) {
  HeldOutTimes times = {.passes = {Forward(100, 1.0e6)}, .disturbance = ""};
  HeldOutPass share = Forward(400, 1.1e6 / 1.25);
  share.samples.front().span = 4;
  share.contexts = 4;
  times.passes.push_back(share);
  const auto errors = ErrorsOf(SomeProfile(), times);
  ASSERT_TRUE(errors.ok()) << errors.status();
  EXPECT_NEAR(Of(*errors, "whole rows").worst, 0.1, 1e-9);
  EXPECT_NEAR(Of(*errors, "shares of context ranks").worst, 0.25, 1e-9);
  EXPECT_NEAR(Of(*errors, "shares, forward").median_bias, 0.25, 1e-9);
  EXPECT_THAT(ToText(*errors), HasSubstr("packed, 1 samples, 100 tokens on one of 4 context ranks"));
}

TEST(ProfileErrors, OfSharesOfContextRanksCountTheirDividedRows) {
  HeldOutPass share = Forward(400, 1.1e6 + 2e5);
  share.samples.front().span = 4;
  share.contexts = 4;
  v1::ProfileFile file = SomeProfile();
  file.mutable_profile()->mutable_layers(0)->mutable_forward()->set_divided_row_ns(2e5);
  const auto errors = ErrorsOf(file, {.passes = {share}, .disturbance = ""});
  ASSERT_TRUE(errors.ok()) << errors.status();
  EXPECT_NEAR(Of(*errors, "shares of context ranks").worst, 0, 1e-9);
}

TEST(ProfileErrors, SayWhatDisturbedTheMeasurement) {
  HeldOutTimes times = {.passes = {Forward(100, 1e6)}, .disturbance = "a build"};
  const auto errors = ErrorsOf(SomeProfile(), times);
  ASSERT_TRUE(errors.ok()) << errors.status();
  EXPECT_THAT(ToText(*errors), HasSubstr("disturbed: a build"));
}

TEST(ProfileErrors, NeedAPassInsideOfTheProfile) {
  EXPECT_TRUE(absl::IsFailedPrecondition(ErrorsOf(SomeProfile(), {}).status()));
}

}  // namespace
}  // namespace penstock::cli
