// A planning pool on a clock that stands still, and tasks that tests hold, count and end.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "planner/service/engine/fake_clock.h"
#include "planner/service/engine/planning_pool.h"
#include "tests/unit/service/event.h"
#include "tests/unit/service/requests.h"

namespace penstock {

inline constexpr PlanningClass kJobBatch = PlanningClass::kJobBatch;
inline constexpr PlanningClass kPreparation = PlanningClass::kPreparation;
inline constexpr PlanningClass kWhatIf = PlanningClass::kWhatIf;

// As a plan does it.
inline void ComputeUntilStopped(const PlanningTicket& ticket) {
  while (!ticket.stop().stopped()) std::this_thread::yield();
}

// A task that computes a millisecond after the other until it is told to end, or stopped.
class LongTask {
 public:
  explicit LongTask(FakeClock* clock) : clock_(clock) {}

  PlanningPool::Task AsTask() {
    return [this](const PlanningTicket& ticket) {
      while (!ticket.stop().stopped() && !end_) {
        clock_->Compute(absl::Milliseconds(1));
        ++steps_;
      }
      told_ = ticket.Explain(ticket.stop().status());
      has_ended_ = true;
      ended_.Notify();
    };
  }

  int64_t steps() const { return steps_; }
  void AwaitSteps(int64_t more) const {
    for (const int64_t before = steps_; steps_ < before + more;) std::this_thread::yield();
  }
  void End() { end_ = true; }
  bool ended() const { return has_ended_; }
  absl::Status AwaitEnd() {
    EXPECT_TRUE(ended_.Await());
    return told_;
  }

 private:
  FakeClock* const clock_;
  std::atomic<int64_t> steps_ = 0;
  std::atomic<bool> end_ = false;
  std::atomic<bool> has_ended_ = false;
  absl::Status told_;
  Event ended_;
};

class PlanningPoolTest : public testing::Test {
 protected:
  PlanningTicketPtr Run(PlanningPool& pool, PlanningWork work, PlanningPool::Task task) {
    EXPECT_TRUE(pool.TryReserve(work.kind, work.owner, 1));
    return pool.Run(std::move(work), std::move(task));
  }

  // A task that holds a thread of the pool until go_on_; runs when this returns.
  void Hold(PlanningPool& pool, PlanningClass kind = kJobBatch) {
    Run(pool, {kind, "holder"}, [this](const PlanningTicket&) {
      held_.Notify();
      go_on_.Await();
    });
    ASSERT_TRUE(held_.Await());
  }

  // A task that writes down its name.
  void Add(PlanningPool& pool, PlanningClass kind, const std::string& owner, const std::string& name) {
    Run(pool, {kind, owner}, [this, name](const PlanningTicket& ticket) {
      MutexLock lock(&mutex_);
      order_.push_back(ticket.status().ok() ? name : "stopped " + name);
    });
  }

  void AddForJob(PlanningPool& pool, const std::string& owner, const std::string& job,
                 const std::string& name) {
    Run(pool, {.owner = owner, .job = job}, [this, name](const PlanningTicket&) {
      MutexLock lock(&mutex_);
      order_.push_back(name);
    });
  }

  // The names in the order in which the tasks ran, once all have.
  std::vector<std::string> Order(PlanningPool& pool) {
    go_on_.Notify();
    pool.Shutdown(absl::Seconds(20));
    MutexLock lock(&mutex_);
    return order_;
  }

  FakeClock clock_;
  Event held_, go_on_;
  Mutex mutex_;
  std::vector<std::string> order_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace penstock
