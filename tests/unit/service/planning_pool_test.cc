#include "planner/service/engine/planning_pool.h"

#include <gtest/gtest.h>

#include <atomic>

#include "tests/unit/service/engine_fixture.h"

namespace penstock {
namespace {

TEST(PlanningPoolTest, RunsTasksInTheOrderInWhichTheyCame) {
  std::vector<int> order;
  Event done;
  PlanningPool pool(1, 10);
  ASSERT_TRUE(pool.TryReserve(3));
  for (int i = 0; i < 3; ++i) {
    pool.Run([&, i](bool) {
      order.push_back(i);
      if (i == 2) done.Notify();
    });
  }
  ASSERT_TRUE(done.Await());
  EXPECT_THAT(order, testing::ElementsAre(0, 1, 2));
}

TEST(PlanningPoolTest, TakesAllPlacesOrNone) {
  PlanningPool pool(1, 4);
  ASSERT_TRUE(pool.TryReserve(3));
  EXPECT_FALSE(pool.TryReserve(2));
  EXPECT_TRUE(pool.TryReserve(1));
  pool.Release(2);
  EXPECT_TRUE(pool.TryReserve(2));
}

TEST(PlanningPoolTest, WaitingTasksCountAndRunningOnesDoNot) {
  Event running, go_on;
  PlanningPool pool(1, 1);
  ASSERT_TRUE(pool.TryReserve(1));
  pool.Run([&](bool) {
    running.Notify();
    go_on.Await();
  });
  ASSERT_TRUE(running.Await());
  EXPECT_EQ(pool.depth(), 0);
  ASSERT_TRUE(pool.TryReserve(1));
  pool.Run([](bool) {});
  EXPECT_EQ(pool.depth(), 1);
  EXPECT_FALSE(pool.TryReserve(1));
  go_on.Notify();
}

TEST(PlanningPoolTest, ShutdownRunsWhatWaitsWithinTheDrain) {
  std::atomic<int> ran = 0;
  PlanningPool pool(2, 100);
  ASSERT_TRUE(pool.TryReserve(50));
  for (int i = 0; i < 50; ++i) pool.Run([&](bool cancelled) { ran += cancelled ? 0 : 1; });
  pool.Shutdown(absl::Seconds(20));
  EXPECT_EQ(ran, 50);
}

TEST(PlanningPoolTest, ShutdownCancelsWhatIsLeftWhenTheDrainIsOver) {
  Event running, go_on;
  std::atomic<int> cancellations = 0;
  PlanningPool pool(1, 10);
  ASSERT_TRUE(pool.TryReserve(4));
  pool.Run([&](bool) {
    running.Notify();
    go_on.Await();
  });
  ASSERT_TRUE(running.Await());
  for (int i = 0; i < 3; ++i) {
    pool.Run([&](bool cancelled) {
      cancellations += cancelled ? 1 : 0;
      go_on.Notify();
    });
  }
  pool.Shutdown(absl::ZeroDuration());
  EXPECT_EQ(cancellations, 3);
}

TEST(PlanningPoolTest, AfterShutdownNothingIsTaken) {
  PlanningPool pool(1, 10);
  ASSERT_TRUE(pool.TryReserve(1));
  pool.Shutdown(absl::ZeroDuration());
  EXPECT_FALSE(pool.TryReserve(1));
  bool told = false;
  pool.Run([&](bool cancelled) { told = cancelled; });
  EXPECT_TRUE(told);
}

}  // namespace
}  // namespace penstock
