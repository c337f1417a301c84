#include "planner/service/engine/wanted_plans.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(WantedPlansTest, APlanIsWantedUntilItIsThere) {
  WantedPlans plans;
  plans.Want(7);
  plans.Want(3);
  plans.Want(7);
  EXPECT_THAT(plans.iterations(), ElementsAre(3, 7));
  plans.NoteMade(3);
  EXPECT_THAT(plans.iterations(), ElementsAre(7));
}

TEST(WantedPlansTest, WhyAPlanIsLostIsToldOnce) {
  WantedPlans plans;
  plans.Want(3);
  plans.NoteLost(3, absl::InternalError("no plan"));
  EXPECT_THAT(plans.iterations(), IsEmpty());
  EXPECT_EQ(plans.TakeLoss(3), absl::InternalError("no plan"));
  EXPECT_FALSE(plans.TakeLoss(3).has_value());
}

TEST(WantedPlansTest, WhatIsNoLongerHeldIsForgotten) {
  WantedPlans plans;
  plans.Want(3);
  plans.Want(5);
  plans.NoteLost(4, absl::InternalError("no plan"));
  plans.ForgetBefore(5);
  EXPECT_THAT(plans.iterations(), ElementsAre(5));
  EXPECT_FALSE(plans.TakeLoss(4).has_value());
}

}  // namespace
}  // namespace penstock
