#include "common/parallel/task_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace penstock {
namespace {

// Threads that wait for each other; a test that would hang fails instead.
class Gate {
 public:
  void Arrive() {
    MutexLock lock(&mutex_);
    ++arrived_;
    changed_.SignalAll();
  }

  // False after 20 s.
  bool AwaitArrivals(int count) {
    MutexLock lock(&mutex_);
    while (arrived_ < count) {
      if (changed_.WaitWithTimeout(&mutex_, absl::Seconds(20)) && arrived_ < count) return false;
    }
    return true;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int arrived_ ABSL_GUARDED_BY(mutex_) = 0;
};

TEST(TaskPoolTest, RunsEachTaskOnceOnAnyNumberOfThreads) {
  for (const int threads : {1, 2, 7}) {
    TaskPool pool(threads);
    for (const int count : {0, 1, 2, 5, 1000}) {
      std::vector<int> runs(count, 0);
      pool.Run(count, [&](int i) { ++runs[i]; });
      EXPECT_EQ(std::count(runs.begin(), runs.end(), 1), count) << threads << " threads";
    }
  }
}

TEST(TaskPoolTest, OneThreadRunsInOrderOnTheCaller) {
  TaskPool pool(1);
  const std::thread::id caller = std::this_thread::get_id();
  std::vector<int> order;
  pool.Run(4, [&](int i) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    order.push_back(i);
  });
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3}));
}

TEST(TaskPoolTest, UsesAsManyThreadsAsItWasGiven) {
  constexpr int kThreads = 5;
  TaskPool pool(kThreads);
  Gate gate;
  pool.Run(kThreads, [&](int) {
    gate.Arrive();
    EXPECT_TRUE(gate.AwaitArrivals(kThreads));  // only if all tasks run side by side
  });
}

TEST(TaskPoolTest, UsesNoMoreThreadsThanItWasGiven) {
  constexpr int kThreads = 3;
  TaskPool pool(kThreads);
  std::atomic<int> running = 0;
  std::atomic<int> most = 0;
  pool.Run(300, [&](int) {
    const int now = ++running;
    int before = most;
    while (now > before && !most.compare_exchange_weak(before, now)) {
    }
    std::this_thread::yield();
    --running;
  });
  EXPECT_LE(most, kThreads);
}

TEST(TaskPoolTest, ACallerGoesOnWhileAllHelpersAreBusy) {
  TaskPool pool(2);
  Gate started;
  Gate finished;
  std::thread busy([&] {
    pool.Run(2, [&](int) {
      started.Arrive();
      EXPECT_TRUE(finished.AwaitArrivals(1));
    });
  });
  ASSERT_TRUE(started.AwaitArrivals(2));
  int done = 0;
  pool.Run(10, [&](int) { ++done; });  // no helper is free, so this is all on one thread
  EXPECT_EQ(done, 10);
  finished.Arrive();
  busy.join();
}

TEST(TaskPoolTest, ATaskMayRunALoopOfItsOwn) {
  for (const int threads : {1, 2, 4}) {
    TaskPool pool(threads);
    std::atomic<int> done = 0;
    pool.Run(8, [&](int) { pool.Run(8, [&](int) { pool.Run(3, [&](int) { ++done; }); }); });
    EXPECT_EQ(done, 8 * 8 * 3);
  }
}

TEST(TaskPoolTest, ALoopInsideATaskGetsTheThreadsThatAreFree) {
  TaskPool pool(2);
  Gate gate;
  pool.Run(2, [&](int outer) {
    if (outer != 0) return;
    pool.Run(2, [&](int) {
      gate.Arrive();
      EXPECT_TRUE(gate.AwaitArrivals(2));
    });
  });
}

TEST(TaskPoolTest, SeveralLoopsShareTheHelpers) {
  constexpr int kTasks = 20;
  TaskPool pool(3);
  Gate both;  // callers that are in their first task, which is always theirs
  Gate rest;  // tasks that helpers have run
  Mutex mutex;
  std::string order;  // whose task each of those was
  const auto caller = [&](char name) {
    pool.Run(kTasks, [&, name](int i) {
      if (i == 0) {
        both.Arrive();
        EXPECT_TRUE(rest.AwaitArrivals(2 * (kTasks - 1)));
        return;
      }
      EXPECT_TRUE(both.AwaitArrivals(2));
      {
        MutexLock lock(&mutex);
        order += name;
      }
      rest.Arrive();
    });
  };
  std::thread first([&] { caller('a'); });
  std::thread second([&] { caller('b'); });
  first.join();
  second.join();
  int ahead = 0;
  for (const char name : order) {
    ahead += name == 'a' ? 1 : -1;
    EXPECT_LE(std::abs(ahead), 3) << order;
  }
}

TEST(TaskPoolTest, ManyCallersLoseNoTask) {
  constexpr int kCallers = 6;
  constexpr int kLoops = 200;
  TaskPool pool(4);
  std::vector<int64_t> sums(kCallers, 0);
  std::vector<std::thread> callers;
  for (int caller = 0; caller < kCallers; ++caller) {
    callers.emplace_back([&pool, &sum = sums[caller]] {
      for (int loop = 0; loop < kLoops; ++loop) {
        std::vector<int64_t> results(loop % 17, 0);
        pool.Run(static_cast<int>(results.size()), [&](int i) { results[i] = i + 1; });
        for (const int64_t result : results) sum += result;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  int64_t expected = 0;
  for (int loop = 0; loop < kLoops; ++loop) expected += (loop % 17) * (loop % 17 + 1) / 2;
  EXPECT_EQ(sums, std::vector<int64_t>(kCallers, expected));
}

TEST(TaskPoolTest, EndsWithItsThreadsBusyOrIdle) {
  for (int round = 0; round < 50; ++round) {
    TaskPool idle(4);
    auto used = std::make_unique<TaskPool>(4);
    std::atomic<int> done = 0;
    used->Run(round, [&](int) { ++done; });
    used.reset();  // helpers may still be waking up
    EXPECT_EQ(done, round);
  }
}

TEST(TaskPoolTest, TheMachineHasAThread) { EXPECT_GE(DefaultThreads(), 1); }

}  // namespace
}  // namespace penstock
