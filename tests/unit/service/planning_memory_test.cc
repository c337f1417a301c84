// What is refused because planning it takes more memory than the planner has, and what happens where the
// estimate was wrong.
#include <atomic>

#include "absl/time/clock.h"
#include "tests/unit/service/engine_fixture.h"

namespace penstock {
namespace {

using testing::HasSubstr;

class PlanningMemoryTest : public EngineFixture {
 protected:
  static EngineOptions Small() { return {.planning_memory_bytes = int64_t{256} << 20}; }

  absl::Status PlanBatch(const v1::JobSpec& job, const v1::Batch& batch) {
    v1::PlanBatchRequest request;
    *request.mutable_job() = job;
    *request.mutable_batch() = batch;
    Event answered;
    absl::Status status;
    engine_->PlanBatch(request, "host", [&](const absl::StatusOr<v1::Plan>& plan) {
      status = plan.status();
      answered.Notify();
    });
    EXPECT_TRUE(answered.Await());
    return status;
  }

  // As one that the watchdog looks at; above the limit while `above_`.
  void StartWatched(FakeBatchPlanner::Gate gate = nullptr) {
    engine_.reset();
    planners_ = std::make_unique<FakeBatchPlannerFactory>(std::move(gate));
    store_ = std::make_unique<MemoryEventStore>();
    EngineDependencies dependencies{planners_.get(), &checker_, store_.get(), &clock_, &observer_};
    dependencies.resident_bytes = [this] { return above_ ? size_t{2000} : size_t{500}; };
    dependencies.planning_begins = [this] { ++begun_; };
    engine_ = std::make_unique<PlannerEngine>(EngineOptions{.process_memory_bytes = 1000}, dependencies);
    ASSERT_TRUE(engine_->Recover().ok());
  }

  std::atomic<bool> above_ = true;
  // How often something has begun to be planned.
  std::atomic<int> begun_ = 0;
};

TEST_F(PlanningMemoryTest, ABatchThatNeverFitsIsRefusedBeforeItIsAccepted) {
  Start(Small());
  const auto job = Register(MakeJob("job"));
  v1::SubmitBatchesRequest request = MakeSubmission("job", 0, 2);
  request.mutable_batches(1)->mutable_samples(0)->set_target_tokens(FakeBatchPlanner::kHuge);
  const auto response = job->SubmitBatches(request);
  EXPECT_THAT(response, Fails(absl::StatusCode::kInvalidArgument, "batches[1].samples: 1000000000 samples"));
  EXPECT_THAT(std::string(response.status().message()), HasSubstr("half of --memory"));
  EXPECT_THAT(std::string(response.status().message()),
              testing::ContainsRegex("a batch of [1-9][0-9]* such samples would do"));
  EXPECT_EQ(job->Status().next_iteration(), 0);
}

// The estimate may take as long as all else that accepting a batch takes.
TEST_F(PlanningMemoryTest, WhatPlanningTakesIsEstimatedOnceForABatch) {
  Start(Small());
  const auto job = Register(MakeJob("job"));
  ASSERT_TRUE(job->SubmitBatches(MakeSubmission("job", 0, 2)).ok());
  Reader reader(job, StreamRequest(0));
  EXPECT_TRUE(reader.Next().has_value());
  EXPECT_TRUE(reader.Next().has_value());
  EXPECT_EQ(planners_->estimates(), 2);
}

// It may have been accepted by a planner with more memory.
TEST_F(PlanningMemoryTest, WhatPlanningTakesIsEstimatedAgainForABatchFromTheStore) {
  Start(Small());
  ASSERT_TRUE(Register(MakeJob("job"))->SubmitBatches(MakeSubmission("job", 0, 1)).ok());
  ASSERT_TRUE(Flush().ok());
  Restart(Small());
  Reader reader(*engine_->FindJob("job"), StreamRequest(0));
  engine_->Tick();
  EXPECT_TRUE(reader.Next().has_value());
  EXPECT_EQ(planners_->estimates(), 2);
}

TEST_F(PlanningMemoryTest, AWhatIfThatNeverFitsIsRefusedAtOnce) {
  Start(Small());
  EXPECT_THAT(PlanBatch(MakeJob("job"), MakeBatch(0, FakeBatchPlanner::kHuge)),
              Fails(absl::StatusCode::kInvalidArgument, "batch.samples"));
  EXPECT_TRUE(PlanBatch(MakeJob("job"), MakeBatch(0)).ok());
}

// Accepted by a planner with more memory.
TEST_F(PlanningMemoryTest, AStoredBatchThatDoesNotFitFailsItsJobAndNoOther) {
  Start({.message_bytes = INT64_MAX});
  const auto large = Register(MakeJob("large"));
  const auto other = Register(MakeJob("job"));
  ASSERT_TRUE(large
                  ->SubmitBatches([] {
                    v1::SubmitBatchesRequest request = MakeSubmission("large", 0, 1);
                    request.mutable_batches(0)->mutable_samples(0)->set_target_tokens(
                        FakeBatchPlanner::kHuge);
                    return request;
                  }())
                  .ok());
  ASSERT_TRUE(Flush().ok());
  Restart(Small());
  v1::StreamProgramsRequest request = StreamRequest(0);
  request.set_job_id("large");
  Reader reader(*engine_->FindJob("large"), request);
  engine_->Tick();
  // Planned before the restart: its plan is made again, and is refused.
  EXPECT_THAT(reader.End(), Fails(absl::StatusCode::kFailedPrecondition, "half of --memory"));
  const auto live = *engine_->FindJob("job");
  while (!live->Planner().ok()) std::this_thread::yield();
  EXPECT_TRUE(live->SubmitBatches(MakeSubmission("job", 0, 1)).ok());
}

TEST_F(PlanningMemoryTest, ABatchThatRunsOutOfMemoryIsTriedOnceMoreAlone) {
  Event started;
  std::atomic<int> tries = 0;
  StartWatched([&](const v1::Batch&) {
    ++tries;
    started.Notify();
  });
  const auto job = Register(MakeJob("job"));
  ASSERT_TRUE(job->SubmitBatches([] {
                   v1::SubmitBatchesRequest request = MakeSubmission("job", 0, 1);
                   request.mutable_batches(0)->mutable_samples(0)->set_target_tokens(
                       FakeBatchPlanner::kUntilStopped);
                   return request;
                 }())
                  .ok());
  Reader reader(job, StreamRequest(0));
  while (tries == 0) engine_->Tick();
  engine_->WatchMemory();
  while (tries == 1) engine_->Tick();
  // The watch goes on: when it looks again, the task that it stopped first may not have ended yet.
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (reader.IsPending() && absl::Now() < deadline) engine_->WatchMemory();
  EXPECT_THAT(reader.End(), Fails(absl::StatusCode::kFailedPrecondition, "ran out of memory"));
  EXPECT_EQ(tries, 2);
}

TEST_F(PlanningMemoryTest, NothingIsStoppedBelowTheLimit) {
  Event started, go_on;
  StartWatched([&](const v1::Batch&) {
    started.Notify();
    go_on.Await();
  });
  above_ = false;
  const auto job = Register(MakeJob("job"));
  ASSERT_TRUE(job->SubmitBatches(MakeSubmission("job", 0, 1)).ok());
  ASSERT_TRUE(started.Await());
  engine_->WatchMemory();
  go_on.Notify();
  EXPECT_TRUE(Reader(job, StreamRequest(0)).Next().has_value());
}

TEST_F(PlanningMemoryTest, MemoryIsWatchedWhileSomethingIsPlannedAndNoLonger) {
  Event started, go_on;
  StartWatched([&](const v1::Batch&) {
    started.Notify();
    go_on.Await();
  });
  above_ = false;
  const auto job = Register(MakeJob("job"));
  const auto await_end = [&] {
    const absl::Time deadline = absl::Now() + absl::Seconds(20);
    while (engine_->WatchMemory() && absl::Now() < deadline) {
    }
  };
  await_end();
  EXPECT_FALSE(engine_->WatchMemory());
  const int before = begun_;
  ASSERT_TRUE(job->SubmitBatches(MakeSubmission("job", 0, 1)).ok());
  ASSERT_TRUE(started.Await());
  EXPECT_GT(begun_, before);
  EXPECT_TRUE(engine_->WatchMemory());
  go_on.Notify();
  EXPECT_TRUE(Reader(job, StreamRequest(0)).Next().has_value());
  await_end();
  EXPECT_FALSE(engine_->WatchMemory());
}

}  // namespace
}  // namespace penstock
