#include "planner/service/engine/progress.h"

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

TEST(ProgressTest, KnowsWhatARankWasSent) {
  Progress progress(2, 5);
  EXPECT_FALSE(progress.WasSent(0, 5));
  progress.Sent(0, 7);
  EXPECT_TRUE(progress.WasSent(0, 7));
  EXPECT_FALSE(progress.WasSent(0, 8));
  EXPECT_FALSE(progress.WasSent(1, 5));
}

TEST(ProgressTest, RestartTakesReportsAndDeliveriesBack) {
  Progress progress(1, 0);
  progress.Sent(0, 3);
  for (uint64_t i = 0; i < 3; ++i) progress.Report(0, i);
  progress.Restart(2);
  EXPECT_EQ(progress.completed(), 2);
  EXPECT_EQ(progress.last_reported(0), -1);
  EXPECT_FALSE(progress.WasSent(0, 2));
}

}  // namespace
}  // namespace penstock
