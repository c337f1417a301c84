#include "planner/service/engine/owner_quotas.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/service/engine/fake_clock.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

constexpr absl::StatusCode kExhausted = absl::StatusCode::kResourceExhausted;

class OwnerQuotasTest : public testing::Test {
 protected:
  static OwnerUse UseOf(const OwnerQuotas& quotas, const std::string& owner) {
    for (const OwnerUse& use : quotas.Uses())
      if (use.owner == owner) return use;
    return {.owner = "nobody"};
  }

  FakeClock clock_;
};

TEST_F(OwnerQuotasTest, WithoutLimitsEverythingIsTakenAndCounted) {
  const OwnerQuotas quotas({}, &clock_);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(quotas.TakeSamples("owner a", 1'000'000'000).ok());
    quotas.ChargePlanning("owner a", PlanningClass::kWhatIf, absl::Hours(1));
    EXPECT_TRUE(quotas.CheckPlanning("owner a").ok());
  }
  const OwnerUse use = UseOf(quotas, "a");
  EXPECT_EQ(use.samples, 3'000'000'000);
  EXPECT_EQ(use.planning[2], absl::Hours(3));
  EXPECT_EQ(use.planning[0], absl::ZeroDuration());
}

TEST_F(OwnerQuotasTest, AnOwnerHasSoManyStreamsOpenAndAnotherHasItsOwn) {
  const OwnerQuotas quotas({.streams = 2}, &clock_);
  const auto first = quotas.OpenStream("owner a");
  auto second = quotas.OpenStream("owner a");
  ASSERT_TRUE(second.ok());
  EXPECT_THAT(quotas.OpenStream("owner a"),
              Fails(kExhausted,
                    "owner 'a' has 2 open streams of programs, the quota is 2: try again when "
                    "one is closed, or raise --streams-of-owner"));
  EXPECT_TRUE(quotas.OpenStream("owner b").ok());
  second->reset();
  EXPECT_TRUE(quotas.OpenStream("owner a").ok());
  EXPECT_EQ(UseOf(quotas, "a").streams, 1);
}

TEST_F(OwnerQuotasTest, WhatMustBeOpenIsOpenedBeyondTheQuotaAndCounts) {
  const OwnerQuotas quotas({.streams = 1}, &clock_);
  const auto worker = quotas.OpenStreamAnyway("owner a");
  const auto other_worker = quotas.OpenStreamAnyway("owner a");
  EXPECT_EQ(UseOf(quotas, "a").streams, 2);
  EXPECT_FALSE(quotas.OpenStream("owner a").ok());
}

TEST_F(OwnerQuotasTest, AStreamMayOutliveTheQuotas) {
  auto quotas = std::make_unique<OwnerQuotas>(OwnerLimits(), &clock_);
  const auto stream = quotas->OpenStreamAnyway("owner a");
  quotas.reset();
}

TEST_F(OwnerQuotasTest, SamplesBeyondAMinutesWorthAreRefusedUntilTheySaidToTryAgain) {
  const OwnerQuotas quotas({.samples_a_minute = 60}, &clock_);
  EXPECT_TRUE(quotas.TakeSamples("owner a", 40).ok());
  EXPECT_TRUE(quotas.TakeSamples("owner a", 30).ok());
  EXPECT_THAT(quotas.TakeSamples("owner a", 1),
              Fails(kExhausted,
                    "owner 'a' has used its samples, the quota is 60 a minute: try again in 11s, "
                    "or raise --samples-of-owner-a-minute"));
  EXPECT_TRUE(quotas.TakeSamples("owner b", 60).ok());
  clock_.Advance(absl::Seconds(9));
  EXPECT_FALSE(quotas.TakeSamples("owner a", 1).ok());
  EXPECT_THAT(quotas.CheckSamples("owner a"), Fails(kExhausted, "try again in 2s"));
  clock_.Advance(absl::Seconds(2));
  EXPECT_TRUE(quotas.CheckSamples("owner a").ok());
  EXPECT_TRUE(quotas.TakeSamples("owner a", 1).ok());
  EXPECT_EQ(UseOf(quotas, "a").samples, 71);
}

TEST_F(OwnerQuotasTest, WhatIsLargerThanAMinutesWorthIsTakenAndPaidForAfterwards) {
  const OwnerQuotas quotas({.samples_a_minute = 10}, &clock_);
  EXPECT_TRUE(quotas.TakeSamples("owner a", 30).ok());
  clock_.Advance(absl::Seconds(119));
  EXPECT_FALSE(quotas.TakeSamples("owner a", 30).ok());
  clock_.Advance(absl::Seconds(2));
  EXPECT_TRUE(quotas.TakeSamples("owner a", 30).ok());
}

TEST_F(OwnerQuotasTest, NoMoreThanAMinutesWorthIsSaved) {
  const OwnerQuotas quotas({.samples_a_minute = 10}, &clock_);
  clock_.Advance(absl::Hours(1));
  EXPECT_TRUE(quotas.TakeSamples("owner a", 10).ok());
  EXPECT_FALSE(quotas.TakeSamples("owner a", 1).ok());
}

TEST_F(OwnerQuotasTest, WhoHasUsedItsPlanningTimeWaitsUntilItHasComeIn) {
  const OwnerQuotas quotas({.planning_seconds_a_minute = 30}, &clock_);
  quotas.ChargePlanning("owner a", PlanningClass::kJobBatch, absl::Seconds(20));
  EXPECT_TRUE(quotas.CheckPlanning("owner a").ok());
  quotas.ChargePlanning("owner a", PlanningClass::kPreparation, absl::Seconds(25));
  EXPECT_THAT(quotas.CheckPlanning("owner a"),
              Fails(kExhausted,
                    "owner 'a' has used its planning time, the quota is 30 seconds a minute: try again "
                    "in 31s, or raise --planning-seconds-of-owner-a-minute"));
  EXPECT_TRUE(quotas.CheckPlanning("owner b").ok());
  clock_.Advance(absl::Seconds(31));
  EXPECT_TRUE(quotas.CheckPlanning("owner a").ok());
}

TEST_F(OwnerQuotasTest, RefusalsAreCountedByQuota) {
  const OwnerQuotas quotas({.streams = 0, .samples_a_minute = 1}, &clock_);
  EXPECT_FALSE(quotas.OpenStream("owner a").ok());
  for (int i = 0; i < 3; ++i) quotas.TakeSamples("owner a", 1).IgnoreError();
  quotas.CountRefusal("owner a", RefusedBy(OwnerQuota::kJobs, "too many"));
  quotas.CountRefusal("owner a", absl::ResourceExhaustedError("the planning queue is full"));
  EXPECT_THAT(UseOf(quotas, "a").refused, testing::ElementsAre(1, 0, 1, 2, 0));
}

TEST_F(OwnerQuotasTest, WhomNobodyKnowsHasQuotasOfItsOwnAndIsSummedUp) {
  const OwnerQuotas quotas({.samples_a_minute = 1}, &clock_);
  for (const char* payer : {"job x", "job y", "ipv4:10.0.0.5"})
    EXPECT_TRUE(quotas.TakeSamples(payer, 2).ok());
  EXPECT_THAT(quotas.TakeSamples("job x", 2), Fails(kExhausted, "job x has used its samples"));
  ASSERT_EQ(quotas.Uses().size(), 1);
  EXPECT_EQ(UseOf(quotas, "").samples, 6);
}

TEST_F(OwnerQuotasTest, ManyOwnersAreNamedUpToALimitAndNothingThatWasCountedIsLost) {
  const OwnerQuotas quotas({}, &clock_);
  for (size_t i = 0; i < 3 * OwnerQuotas::kMostOwners; ++i)
    EXPECT_TRUE(quotas.TakeSamples(absl::StrCat("owner ", i), 1).ok());
  EXPECT_EQ(quotas.Uses().size(), OwnerQuotas::kMostOwners + 1);
  EXPECT_EQ(UseOf(quotas, OwnerQuotas::kOtherOwners).samples, 2 * OwnerQuotas::kMostOwners);
}

TEST_F(OwnerQuotasTest, WhereThereAreManyOwnersThoseThatUseNothingMakeRoom) {
  const OwnerQuotas quotas({.samples_a_minute = 10}, &clock_);
  const auto stream = quotas.OpenStreamAnyway("owner reads");
  EXPECT_TRUE(quotas.TakeSamples("owner owes", 1000).ok());
  for (size_t i = 0; i < OwnerQuotas::kMostOwners - 2; ++i)
    EXPECT_TRUE(quotas.TakeSamples(absl::StrCat("owner ", i), 1).ok());
  clock_.Advance(absl::Minutes(2));
  EXPECT_TRUE(quotas.TakeSamples("owner new", 1).ok());
  EXPECT_EQ(UseOf(quotas, "new").samples, 1);
  EXPECT_EQ(UseOf(quotas, "reads").streams, 1);
  EXPECT_EQ(UseOf(quotas, "0").owner, "nobody");
  EXPECT_EQ(UseOf(quotas, OwnerQuotas::kOtherOwners).samples, OwnerQuotas::kMostOwners - 2);
  EXPECT_FALSE(quotas.TakeSamples("owner owes", 1).ok()) << "who owes is not forgotten";
}

}  // namespace
}  // namespace penstock
