// What the gauges of the engine show.
#include "planner/service/main/planner_metrics.h"

#include "tests/unit/service/engine_fixture.h"

namespace penstock {
namespace {

using testing::HasSubstr;

class PlannerMetricsTest : public EngineFixture {
 protected:
  // Also in tests that end early: the pool waits for its plans.
  ~PlannerMetricsTest() override { Open(); }

  void Open() {
    MutexLock lock(&mutex_);
    open_ = true;
    opened_.SignalAll();
  }
  void WaitUntilOpen() {
    MutexLock lock(&mutex_);
    while (!open_) opened_.Wait(&mutex_);
  }

 private:
  Mutex mutex_;
  CondVar opened_;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
};

TEST_F(PlannerMetricsTest, WorkersThatResumeAheadOfThePlansHaveNothingPlannedAhead) {
  Start({}, [this](const v1::Batch&) { WaitUntilOpen(); });
  MetricsRegistry registry;
  PlannerMetrics metrics(&registry);
  EngineSlot slot;
  slot.Lead(EnginePtr(engine_.get(), [](PlannerEngine*) {}));
  metrics.Watch(&slot);
  const auto job = Register(MakeJob("job"));
  ASSERT_TRUE(job->SubmitBatches(MakeSubmission("job", 0, 10)).ok());
  // From the checkpoint of iteration 10, while the planner has yet to plan the first batch.
  ASSERT_TRUE(job->RegisterWorker(MakeRegistration(101, -1, 10)).ok());
  EXPECT_THAT(registry.Text(), HasSubstr("penstock_look_ahead_iterations{job=\"job\"} 0\n"));
  Open();
  engine_->Shutdown(absl::Seconds(20));
  EXPECT_THAT(registry.Text(), HasSubstr("penstock_look_ahead_iterations{job=\"job\"} 0\n"));
}

TEST_F(PlannerMetricsTest, AJobsEpochGrowsWhenItsWorkersBeginAgain) {
  MetricsRegistry registry;
  PlannerMetrics metrics(&registry);
  EngineSlot slot;
  slot.Lead(EnginePtr(engine_.get(), [](PlannerEngine*) {}));
  metrics.Watch(&slot);
  const auto job = Register(MakeJob("job"));
  FormEpoch(*job, 101);
  EXPECT_THAT(registry.Text(), HasSubstr("penstock_job_epoch{job=\"job\"} 1\n"));
  clock_.Advance(absl::Seconds(10));
  job->Tick();
  FormEpoch(*job, 201);
  EXPECT_THAT(registry.Text(), HasSubstr("penstock_job_epoch{job=\"job\"} 2\n"));
  Open();
}

}  // namespace
}  // namespace penstock
