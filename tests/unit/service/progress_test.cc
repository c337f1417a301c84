#include "planner/service/state/progress.h"

#include <gtest/gtest.h>

namespace penstock {
namespace {

TEST(IterationCounterTest, GoesOnWhenTheGapIsFilled) {
  IterationCounter counter(10);
  EXPECT_TRUE(counter.Add(11));
  EXPECT_TRUE(counter.Add(13));
  EXPECT_EQ(counter.next(), 10);
  EXPECT_TRUE(counter.Add(10));
  EXPECT_EQ(counter.next(), 12);
  EXPECT_TRUE(counter.Contains(13));
  EXPECT_FALSE(counter.Contains(12));
}

TEST(IterationCounterTest, CountsAnIterationOnce) {
  IterationCounter counter(0);
  EXPECT_TRUE(counter.Add(0));
  EXPECT_FALSE(counter.Add(0));
  EXPECT_TRUE(counter.Add(5));
  EXPECT_FALSE(counter.Add(5));
}

TEST(IterationCounterTest, ResetForgetsWhatWasDone) {
  IterationCounter counter(0);
  for (uint64_t i : {0, 1, 2, 7}) counter.Add(i);
  counter.Reset(1);
  EXPECT_EQ(counter.next(), 1);
  EXPECT_FALSE(counter.Contains(7));
}

TEST(IterationCounterTest, SkipsWhatIsNotNeeded) {
  IterationCounter counter(0);
  for (uint64_t i : {1, 5, 6, 9}) counter.Add(i);
  counter.SkipTo(4);
  EXPECT_EQ(counter.next(), 4);
  counter.SkipTo(5);
  EXPECT_EQ(counter.next(), 7);
  counter.SkipTo(3);
  EXPECT_EQ(counter.next(), 7);
  EXPECT_TRUE(counter.Contains(9));
  EXPECT_FALSE(counter.Contains(8));
}

TEST(ProgressTest, TheSlowestRankDecides) {
  Progress progress(3, 5);
  progress.Report(0, 5);
  progress.Report(0, 6);
  progress.Report(1, 5);
  EXPECT_EQ(progress.completed(), 5);
  progress.Report(2, 5);
  EXPECT_EQ(progress.completed(), 6);
  EXPECT_EQ(progress.last_reported(0), 6);
}

TEST(ProgressTest, RestartTakesReportsBack) {
  Progress progress(1, 0);
  for (uint64_t i = 0; i < 3; ++i) progress.Report(0, i);
  progress.Restart(2);
  EXPECT_EQ(progress.completed(), 2);
  EXPECT_EQ(progress.last_reported(0), -1);
}

}  // namespace
}  // namespace penstock
