// Batches that kill the planner that plans them.
#include <atomic>

#include "tests/unit/service/engine_fixture.h"

namespace penstock {
namespace {

constexpr uint32_t kDeadly = 666;

// All that a store has, as a process that dies now leaves it.
std::unique_ptr<MemoryEventStore> CopyOf(MemoryEventStore& store) {
  auto copy = std::make_unique<MemoryEventStore>();
  const absl::StatusOr<std::vector<StoredJob>> jobs = store.Load();
  for (const StoredJob& job : *jobs) {
    JobChange change{
        .job = job.job, .job_id = job.job_id, .first_sequence = job.first_sequence, .events = job.events};
    for (uint64_t iteration = 0;; ++iteration) {
      const absl::StatusOr<std::string> batch = store.GetBatch(job.job, iteration);
      if (!batch.ok()) break;
      change.batches.emplace_back(iteration, *batch);
    }
    EXPECT_TRUE(copy->Commit({change}).ok());
  }
  return copy;
}

class JobSuspectsTest : public EngineFixture {
 protected:
  JobSuspectsTest() {
    Start({}, [this](const v1::Batch& batch) {
      if (!FakeBatchPlanner::Has(batch, kDeadly)) return;
      ++tries_;
      MutexLock lock(&mutex_);
      left_behind_ = CopyOf(*store_);
      planning_.Notify();
    });
  }

  void Feed(const std::string& id, uint32_t tokens) {
    v1::SubmitBatchesRequest request = MakeSubmission(id, 0, 1, tokens);
    const auto job = Register(MakeJob(id));
    ASSERT_TRUE(job->SubmitBatches(request).ok());
  }

  // The planner dies while it plans the deadly batch, and another is started.
  void DieInPlanning() {
    ASSERT_TRUE(planning_.Await());
    engine_.reset();
    {
      MutexLock lock(&mutex_);
      store_ = std::move(left_behind_);
    }
    Restart();
  }

  // What becomes of the job, in the end.
  absl::Status EndOf(const std::string& id) {
    v1::StreamProgramsRequest request = StreamRequest(0);
    request.set_job_id(id);
    const auto job = *engine_->FindJob(id);
    while (!job->Planner().ok()) std::this_thread::yield();
    Reader reader(job, request);
    return reader.Next().has_value() ? absl::OkStatus() : reader.End();
  }

  std::atomic<int> tries_ = 0;
  Event planning_;
  Mutex mutex_;
  std::unique_ptr<MemoryEventStore> left_behind_;
};

TEST_F(JobSuspectsTest, ABatchThatKilledTwoPlannersThatPlannedItAloneFailsItsJobAndNoOther) {
  Feed("other", 10);
  Feed("deadly", kDeadly);
  DieInPlanning();  // nobody knows what it was
  DieInPlanning();
  DieInPlanning();
  EXPECT_THAT(EndOf("deadly"),
              Fails(absl::StatusCode::kFailedPrecondition, "2 planners died while they planned"));
  EXPECT_EQ(tries_, 3);
  EXPECT_TRUE(EndOf("other").ok());
}

TEST_F(JobSuspectsTest, ABatchThatWasPlannedInTheEndIsNoSuspectAnyMore) {
  Feed("deadly", kDeadly);
  DieInPlanning();
  DieInPlanning();
  ASSERT_TRUE(planning_.Await());
  EXPECT_TRUE(EndOf("deadly").ok());
  EXPECT_EQ((*engine_->FindJob("deadly"))->Snapshot().tried_size(), 0);
}

}  // namespace
}  // namespace penstock
