// Tasks of a planning pool that are stopped, one by one and at its end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tests/unit/service/planning_pool_fixture.h"

namespace penstock {
namespace {

TEST_F(PlanningPoolTest, CancelCallsATaskThatWaitsAtOnce) {
  PlanningPool pool(1, 10, &clock_);
  Hold(pool);
  absl::Status told;
  const auto ticket =
      Run(pool, {kWhatIf, "host"}, [&](const PlanningTicket& ticket) { told = ticket.status(); });
  Add(pool, kWhatIf, "host", "next");
  pool.Cancel(ticket);
  EXPECT_THAT(told, Fails(absl::StatusCode::kCancelled, "client"));
  EXPECT_EQ(pool.depth(), 1);
  pool.Cancel(ticket);  // nothing is left of it
  EXPECT_THAT(Order(pool), testing::ElementsAre("next"));
}

TEST_F(PlanningPoolTest, CancelStopsATaskThatRuns) {
  PlanningPool pool(1, 10, &clock_);
  Event started, ended;
  absl::Status told;
  const auto ticket = Run(pool, {kWhatIf, "host"}, [&](const PlanningTicket& ticket) {
    started.Notify();
    ComputeUntilStopped(ticket);
    told = ticket.Explain(ticket.stop().status());
    ended.Notify();
  });
  ASSERT_TRUE(started.Await());
  pool.Cancel(ticket);
  ASSERT_TRUE(ended.Await());
  EXPECT_THAT(told, Fails(absl::StatusCode::kCancelled, "client"));
}

TEST_F(PlanningPoolTest, ATaskIsStoppedWhenItHasComputedUpToItsLimit) {
  PlanningPool pool(1, 10, &clock_);
  Hold(pool);
  Event started, ended;
  absl::Status told;
  Run(pool, {kJobBatch, "job", absl::Seconds(10)}, [&](const PlanningTicket& ticket) {
    started.Notify();
    ComputeUntilStopped(ticket);
    told = ticket.Explain(ticket.stop().status());
    ended.Notify();
  });
  // Waiting does not count.
  clock_.Advance(absl::Seconds(100));
  pool.StopOverdue();
  go_on_.Notify();
  ASSERT_TRUE(started.Await());
  clock_.Advance(absl::Seconds(9));
  pool.StopOverdue();
  EXPECT_TRUE(told.ok());
  clock_.Advance(absl::Seconds(1));
  pool.StopOverdue();
  ASSERT_TRUE(ended.Await());
  EXPECT_THAT(told, Fails(absl::StatusCode::kDeadlineExceeded,
                          "after 10s, the limit of this planner (--planning-limit-seconds)"));
}

TEST_F(PlanningPoolTest, ShutdownRunsWhatWaitsWithinTheDrain) {
  std::atomic<int> ran = 0;
  PlanningPool pool(2, 100, &clock_);
  for (const PlanningClass kind : {kJobBatch, kPreparation, kWhatIf}) {
    for (int i = 0; i < 20; ++i) {
      Run(pool, {kind, "owner"}, [&](const PlanningTicket& ticket) { ran += ticket.status().ok() ? 1 : 0; });
    }
  }
  pool.Shutdown(absl::Seconds(20));
  EXPECT_EQ(ran, 60);
}

TEST_F(PlanningPoolTest, ShutdownStopsWhatWaitsAndWhatRunsWhenTheDrainIsOver) {
  PlanningPool pool(2, 10, &clock_);
  Event started;
  std::atomic<int> stopped = 0;
  for (int i = 0; i < 5; ++i) {
    Run(pool, {kJobBatch, "job"}, [&](const PlanningTicket& ticket) {
      started.Notify();
      ComputeUntilStopped(ticket);
      stopped += absl::IsUnavailable(ticket.status()) ? 1 : 0;
    });
  }
  ASSERT_TRUE(started.Await());
  pool.Shutdown(absl::ZeroDuration());  // would wait for ever if it only joined
  EXPECT_EQ(stopped, 5);
}

TEST_F(PlanningPoolTest, AfterShutdownNothingIsTaken) {
  PlanningPool pool(1, 10, &clock_);
  ASSERT_TRUE(pool.TryReserve(kJobBatch, "job", 1));
  pool.Shutdown(absl::ZeroDuration());
  EXPECT_FALSE(pool.TryReserve(kJobBatch, "job", 1));
  absl::Status told;
  pool.Run({kJobBatch, "job"}, [&](const PlanningTicket& ticket) { told = ticket.status(); });
  EXPECT_THAT(told, Fails(absl::StatusCode::kUnavailable, "stops"));
}

// Thread sanitizer looks at this one.
TEST_F(PlanningPoolTest, EveryTaskIsCalledOnceWhoeverStopsIt) {
  constexpr int kTasks = 300;
  std::vector<std::atomic<int>> calls(kTasks);
  PlanningPool pool(3, kTasks, &clock_);
  std::vector<PlanningTicketPtr> tickets;
  for (int i = 0; i < kTasks; ++i) {
    const auto kind = static_cast<PlanningClass>(i % 2);
    tickets.push_back(Run(pool, {kind, std::to_string(i % 7), absl::Seconds(1)},
                          [&calls, i](const PlanningTicket&) { ++calls[i]; }));
    if (i % 3 == 0) pool.Cancel(tickets[i / 2]);
    if (i % 50 == 0) {
      clock_.Advance(absl::Seconds(1));
      pool.StopOverdue();
    }
  }
  std::thread canceller([&] {
    for (const PlanningTicketPtr& ticket : tickets) pool.Cancel(ticket);
  });
  pool.Shutdown(absl::Milliseconds(1));
  canceller.join();
  for (int i = 0; i < kTasks; ++i) EXPECT_EQ(calls[i], 1) << "task " << i;
}

}  // namespace
}  // namespace penstock
