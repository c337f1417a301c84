#include "planner/service/engine/stream_budget.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

std::string Bytes(size_t count) { return std::string(count, 'x'); }

TEST(StreamBudgetTest, WhatIsHeldIsFreeAgainWhenItsLastHolderLetsGo) {
  StreamBudget budget(100);
  ProgramBytes first = *budget.Hold("a", Bytes(60));
  ProgramBytes second = first;
  EXPECT_EQ(budget.held(), 60);
  first.reset();
  EXPECT_EQ(budget.held(), 60);
  second.reset();
  EXPECT_EQ(budget.held(), 0);
}

TEST(StreamBudgetTest, OneOwnerMayHoldAllOfItAndNoMore) {
  const StreamBudget budget(100);
  const ProgramBytes held = *budget.Hold("a", Bytes(100));
  EXPECT_THAT(budget.Hold("a", Bytes(1)),
              Fails(absl::StatusCode::kResourceExhausted, "hold 100 bytes that nobody has read"));
}

TEST(StreamBudgetTest, WhereAllIsHeldEachOwnerStillHasAnEqualShare) {
  const StreamBudget budget(100);
  const ProgramBytes greedy = *budget.Hold("greedy", Bytes(100));
  std::vector<ProgramBytes> others;
  for (const char* owner : {"a", "b", "c"}) others.push_back(*budget.Hold(owner, Bytes(25)));
  EXPECT_THAT(budget.Hold("a", Bytes(1)), Fails(absl::StatusCode::kResourceExhausted, "Read the streams"));
  EXPECT_FALSE(budget.Hold("greedy", Bytes(1)).ok());
  EXPECT_EQ(budget.held(), 175);
}

TEST(StreamBudgetTest, WhatMustBeSentIsCountedAndNeverRefused) {
  const StreamBudget budget(100);
  const ProgramBytes held = budget.HoldAnyway("a", Bytes(150));
  EXPECT_EQ(budget.held(), 150);
  EXPECT_FALSE(budget.HoldBytes("a", 1).ok());
  EXPECT_TRUE(budget.HoldBytes("b", 50).ok());
}

TEST(StreamBudgetTest, WhatIsHeldMayOutliveTheBudget) {
  ProgramBytes held;
  {
    const StreamBudget budget(100);
    held = *budget.Hold("a", Bytes(10));
  }
  EXPECT_EQ(*held, Bytes(10));
}

}  // namespace
}  // namespace penstock
