#include "planner/cli/up/training_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/grpc/server.h"
#include "common/sync/sync.h"
#include "penstock/client/refused_quota.h"
#include "penstock/v1/planner_service.grpc.pb.h"

namespace penstock::cli {
namespace {

using testing::HasSubstr;

// A planner whose answers the test gives: takes batches within its window, and completes what it is told to.
class FakePlanner final : public v1::PlannerService::Service {
 public:
  explicit FakePlanner(uint64_t window) : window_(window) {
    absl::StatusOr<RunningServer> running = StartServer({.listen = "127.0.0.1:0", .services = {this}});
    EXPECT_TRUE(running.ok()) << running.status();
    running_ = *std::move(running);
  }
  ~FakePlanner() override { running_.server->Shutdown(std::chrono::system_clock::now()); }

  std::string address() const { return absl::StrCat("127.0.0.1:", running_.port); }

  void Complete(uint64_t iterations) {
    MutexLock lock(&mutex_);
    completed_ = iterations;
  }
  // GetJob has a summary of the last iteration, which took so long.
  void Measure(absl::Duration iteration_time) {
    MutexLock lock(&mutex_);
    iteration_time_ = iteration_time;
  }
  // What GetJob answers so many times before it answers well again.
  void FailGetJob(grpc::StatusCode code, int times) {
    MutexLock lock(&mutex_);
    failure_ = code;
    failures_ = times;
  }
  // Refuses every batch while it is set.
  void SetFull(bool full) {
    MutexLock lock(&mutex_);
    full_ = full;
  }
  void SetState(v1::JobState state) {
    MutexLock lock(&mutex_);
    state_ = state;
  }
  // The next batch finds that the job drains, which GetJob has not said before.
  void DrainAtNextBatch() {
    MutexLock lock(&mutex_);
    drain_at_next_batch_ = true;
  }
  // Takes no batches, as when its store cannot be written.
  void FailSubmissions(bool fail) {
    MutexLock lock(&mutex_);
    cannot_store_ = fail;
  }
  // Of a feeder before this one.
  void HasBatches(uint64_t batches) {
    MutexLock lock(&mutex_);
    taken_ = batches;
  }
  // The iterations of all batches that were submitted, in order.
  std::vector<uint64_t> submitted() {
    MutexLock lock(&mutex_);
    return submitted_;
  }
  uint64_t taken() {
    MutexLock lock(&mutex_);
    return taken_;
  }
  int refused() {
    MutexLock lock(&mutex_);
    return refused_;
  }

  grpc::Status GetJob(grpc::ServerContext*, const v1::GetJobRequest* request,
                      v1::GetJobResponse* response) override {
    MutexLock lock(&mutex_);
    if (failures_ > 0) {
      --failures_;
      return {failure_, "not now"};
    }
    response->mutable_status()->set_state(state_);
    response->mutable_status()->set_completed_iteration(completed_);
    response->mutable_status()->set_next_iteration(taken_);
    if (completed_ > request->from_iteration() && iteration_time_ > absl::ZeroDuration()) {
      v1::IterationSummary* last = response->add_iterations();
      last->set_iteration(completed_ - 1);
      last->set_measured_ns(absl::ToInt64Nanoseconds(iteration_time_));
    }
    if (cannot_store_)
      response->mutable_status()->set_store_failure("the store cannot be written: disk full");
    return grpc::Status::OK;
  }

  // What a refusal of SetFull says of a quota; empty: nothing.
  void SetQuota(std::string quota) {
    MutexLock lock(&mutex_);
    quota_ = std::move(quota);
  }

  grpc::Status SubmitBatches(grpc::ServerContext* context, const v1::SubmitBatchesRequest* request,
                             v1::SubmitBatchesResponse*) override {
    MutexLock lock(&mutex_);
    submitted_.push_back(request->batches(0).iteration());
    if (drain_at_next_batch_) {
      state_ = v1::JOB_STATE_DRAINING;
      return {grpc::StatusCode::FAILED_PRECONDITION, "job 'job' drains"};
    }
    if (cannot_store_) return {grpc::StatusCode::UNAVAILABLE, "the store cannot be written: disk full"};
    if (submitted_.back() < taken_) return grpc::Status::OK;
    if (full_ || taken_ >= completed_ + window_) {
      ++refused_;
      if (!quota_.empty()) context->AddTrailingMetadata(kQuotaKey, quota_);
      return {grpc::StatusCode::RESOURCE_EXHAUSTED, "full"};
    }
    ++taken_;
    return grpc::Status::OK;
  }

 private:
  const uint64_t window_;
  RunningServer running_;
  Mutex mutex_;
  uint64_t completed_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Duration iteration_time_ ABSL_GUARDED_BY(mutex_);
  uint64_t taken_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<uint64_t> submitted_ ABSL_GUARDED_BY(mutex_);
  int refused_ ABSL_GUARDED_BY(mutex_) = 0;
  v1::JobState state_ ABSL_GUARDED_BY(mutex_) = v1::JOB_STATE_RUNNING;
  bool drain_at_next_batch_ ABSL_GUARDED_BY(mutex_) = false;
  bool full_ ABSL_GUARDED_BY(mutex_) = false;
  std::string quota_ ABSL_GUARDED_BY(mutex_);
  bool cannot_store_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::StatusCode failure_ ABSL_GUARDED_BY(mutex_) = grpc::StatusCode::OK;
  int failures_ ABSL_GUARDED_BY(mutex_) = 0;
};

class OneSample : public BatchSource {
 public:
  v1::Batch Make(uint64_t iteration) override {
    v1::Batch batch;
    batch.set_iteration(iteration);
    batch.add_samples()->set_target_tokens(1);
    return batch;
  }
};

class TrainingRunTest : public testing::Test {
 protected:
  static v1::JobSpec Job(uint32_t window) {
    v1::JobSpec job;
    job.set_job_id("job");
    job.set_look_ahead_window(window);
    job.set_fixed_costs(true);
    job.mutable_training()->set_iterations(1000);
    return job;
  }
  absl::Status Step(TrainingRun& run) {
    return run.Step([](const v1::IterationSummary&) {});
  }

  OneSample source_;
};

TEST_F(TrainingRunTest, FeedsLittleUntilCostsAreFittedToWhatWasMeasured) {
  FakePlanner planner(16);
  PlannerClient client(planner.address());
  v1::JobSpec job = Job(0);
  job.set_fixed_costs(false);
  job.set_first_iteration(100);
  planner.HasBatches(100);
  TrainingRun run(client, job, source_);
  for (const auto& [completed, fed] :
       std::map<uint64_t, uint64_t>{{100, 104}, {104, 108}, {105, 121}, {110, 126}}) {
    planner.Complete(completed);
    for (int step = 0; step < 5; ++step) ASSERT_TRUE(Step(run).ok());
    EXPECT_EQ(run.next_batch(), fed) << completed;
  }
}

TEST(WindowOfTimesTest, LastsForASecondAndLongerThanPlanningTakes) {
  constexpr absl::Duration kNoPlanning;
  EXPECT_EQ(WindowOfTimes(absl::Milliseconds(10), kNoPlanning, 16), 16);
  EXPECT_EQ(WindowOfTimes(absl::Milliseconds(150), kNoPlanning, 16), 7);
  EXPECT_EQ(WindowOfTimes(absl::Seconds(1), kNoPlanning, 16), 4);
  EXPECT_EQ(WindowOfTimes(absl::Seconds(1), kNoPlanning, 2), 2);
  EXPECT_EQ(WindowOfTimes(absl::Seconds(10), absl::Seconds(20), 16), 8);
  EXPECT_EQ(WindowOfTimes(absl::Seconds(1), absl::Seconds(20), 16), 16);
  // Nothing is known yet.
  EXPECT_EQ(WindowOfTimes(absl::ZeroDuration(), kNoPlanning, 16), 16);
}

TEST_F(TrainingRunTest, FeedsAsFarAsTheWindowWithoutBeingRefused) {
  FakePlanner planner(16);
  PlannerClient client(planner.address());
  TrainingRun run(client, Job(0), source_);  // 0: 16
  for (uint64_t completed = 0; completed < 20; ++completed) {
    planner.Complete(completed);
    for (int step = 0; step < 5; ++step) ASSERT_TRUE(Step(run).ok());
    EXPECT_EQ(planner.taken(), completed + 16);
  }
  EXPECT_EQ(planner.refused(), 0);
}

TEST_F(TrainingRunTest, PausesUntilTheNextIterationIsDoneButNotForLong) {
  FakePlanner planner(16);
  PlannerClient client(planner.address());
  TrainingRun run(client, Job(16), source_);
  ASSERT_TRUE(Step(run).ok());
  // Nobody knows yet how long an iteration takes.
  EXPECT_EQ(run.Pause(), absl::Milliseconds(50));
  uint64_t completed = 0;
  for (const auto& [iteration_ms, pause_ms] : std::map<int, int>{{1, 50}, {120, 120}, {3000, 250}}) {
    planner.Measure(absl::Milliseconds(iteration_ms));
    planner.Complete(++completed);
    ASSERT_TRUE(Step(run).ok());
    EXPECT_EQ(run.Pause(), absl::Milliseconds(pause_ms)) << iteration_ms;
  }
}

TEST_F(TrainingRunTest, PausesBrieflyWhereBatchesAreShortOrSomethingIsWrong) {
  FakePlanner planner(16);
  planner.Measure(absl::Seconds(3));
  PlannerClient client(planner.address());
  TrainingRun few_ahead(client, Job(2), source_);
  TrainingRun run(client, Job(16), source_);
  planner.Complete(1);
  ASSERT_TRUE(Step(few_ahead).ok());
  ASSERT_TRUE(Step(run).ok());
  EXPECT_EQ(few_ahead.Pause(), absl::Milliseconds(50));
  EXPECT_EQ(run.Pause(), absl::Milliseconds(250));
  planner.FailGetJob(grpc::StatusCode::UNAVAILABLE, 1000);
  ASSERT_TRUE(Step(run).ok());
  EXPECT_EQ(run.Pause(), absl::Milliseconds(50));
  planner.FailGetJob(grpc::StatusCode::OK, 0);
  planner.SetState(v1::JOB_STATE_FAILED);
  TrainingRun supervised(client, Job(16), source_, absl::Seconds(10), TrainingRun::Epochs::kMany);
  ASSERT_TRUE(Step(supervised).ok());
  EXPECT_EQ(supervised.Pause(), absl::Milliseconds(50));
}

TEST_F(TrainingRunTest, FeedsNoBatchBehindAnEndThatIsGiven) {
  FakePlanner planner(16);
  PlannerClient client(planner.address());
  TrainingRun run(client, Job(0), source_);
  run.FeedUntil(3);
  for (int step = 0; step < 5; ++step) ASSERT_TRUE(Step(run).ok());
  EXPECT_EQ(planner.taken(), 3U);
  EXPECT_FALSE(run.fed());
}

TEST_F(TrainingRunTest, GoesOnBehindTheBatchesThatTheJobHasAndShowsTheLastOfThem) {
  FakePlanner planner(8);
  planner.Complete(90);
  planner.HasBatches(95);
  PlannerClient client(planner.address());
  TrainingRun run(client, Job(8), source_);
  ASSERT_TRUE(Step(run).ok());
  EXPECT_THAT(planner.submitted(), testing::ElementsAre(94, 95, 96, 97));
  EXPECT_EQ(run.next_batch(), 98);
  EXPECT_FALSE(run.fed());
  planner.Complete(1000);
  ASSERT_TRUE(Step(run).ok());
  EXPECT_TRUE(run.fed());
}

TEST_F(TrainingRunTest, ABatchThatIsRefusedWithinTheWindowIsTriedAgainWithPausesUntilProgress) {
  FakePlanner planner(16);
  PlannerClient client(planner.address());
  TrainingRun run(client, Job(16), source_);
  planner.SetFull(true);
  const absl::Time begin = absl::Now();
  for (int step = 0; step < 100; ++step) ASSERT_TRUE(Step(run).ok());
  // Pauses of 50, 100, 200, 250, 250, ... ms.
  EXPECT_LE(planner.refused(), 2 + (absl::Now() - begin) / absl::Milliseconds(50));
  EXPECT_LT(planner.refused(), 100);
  planner.SetFull(false);
  planner.Complete(1);
  ASSERT_TRUE(Step(run).ok());
  EXPECT_EQ(planner.taken(), 17);
}

TEST_F(TrainingRunTest, KnowsThatAQuotaHoldsItUntilTheBatchIsTaken) {
  FakePlanner planner(16);
  PlannerClient client(planner.address());
  TrainingRun run(client, Job(16), source_);
  planner.SetFull(true);
  ASSERT_TRUE(Step(run).ok());
  EXPECT_EQ(run.held_by_quota(), "") << "the window, or the queue";
  planner.SetQuota("samples");
  planner.Complete(1);
  ASSERT_TRUE(Step(run).ok());
  EXPECT_EQ(run.held_by_quota(), "full");
  planner.SetFull(false);
  planner.Complete(2);
  ASSERT_TRUE(Step(run).ok());
  EXPECT_EQ(run.held_by_quota(), "");
}

TEST_F(TrainingRunTest, APlannerThatDoesNotAnswerForAWhileDoesNotEndTheRun) {
  FakePlanner planner(4);
  PlannerClient client(planner.address());
  TrainingRun run(client, Job(4), source_);
  for (const auto code : {grpc::StatusCode::DEADLINE_EXCEEDED, grpc::StatusCode::UNAVAILABLE}) {
    planner.FailGetJob(code, 2);
    for (int step = 0; step < 3; ++step) EXPECT_TRUE(Step(run).ok()) << code;
  }
  EXPECT_EQ(planner.taken(), 4);
}

TEST_F(TrainingRunTest, APlannerThatDoesNotAnswerForLongEndsIt) {
  FakePlanner planner(4);
  PlannerClient client(planner.address());
  TrainingRun run(client, Job(4), source_, /*patience=*/absl::ZeroDuration());
  planner.FailGetJob(grpc::StatusCode::DEADLINE_EXCEEDED, 1);
  const absl::Status status = Step(run);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("the planner has not answered for"));
}

// Who ends a planner that hangs must not end one that waits for its disk.
TEST_F(TrainingRunTest, APlannerThatCannotTakeBatchesIsTroubledAndNotSilent) {
  FakePlanner planner(4);
  PlannerClient client(planner.address());
  client.RepeatNoCall();
  TrainingRun run(client, Job(4), source_);
  planner.FailSubmissions(true);
  for (int step = 0; step < 3; ++step) EXPECT_TRUE(Step(run).ok());
  EXPECT_EQ(run.silence(), absl::ZeroDuration());
  EXPECT_THAT(run.trouble(), HasSubstr("disk full"));
  EXPECT_GT(run.troubled_for(), absl::ZeroDuration());
  planner.FailSubmissions(false);
  EXPECT_TRUE(Step(run).ok());
  EXPECT_EQ(run.trouble(), "");
  EXPECT_EQ(planner.taken(), 4);
}

TEST_F(TrainingRunTest, AJobThatDrainsIsWatchedToItsEndAndTakesNoMore) {
  for (const auto epochs : {TrainingRun::Epochs::kOne, TrainingRun::Epochs::kMany}) {
    for (const bool at_batch : {false, true}) {
      FakePlanner planner(4);
      PlannerClient client(planner.address());
      TrainingRun run(client, Job(4), source_, TrainingRun::kPatience, epochs);
      ASSERT_TRUE(Step(run).ok());
      EXPECT_FALSE(run.drains());
      planner.Complete(1);
      at_batch ? planner.DrainAtNextBatch() : planner.SetState(v1::JOB_STATE_DRAINING);
      for (int step = 0; step < 3; ++step) ASSERT_TRUE(Step(run).ok());
      EXPECT_TRUE(run.drains());
      EXPECT_FALSE(run.finished());
      EXPECT_EQ(planner.taken(), 4);
      EXPECT_EQ(planner.submitted().size(), at_batch ? 5 : 4);
      planner.Complete(4);
      planner.SetState(v1::JOB_STATE_FINISHED);
      ASSERT_TRUE(Step(run).ok());
      EXPECT_TRUE(run.finished());
      EXPECT_EQ(run.status().completed_iteration(), 4);
    }
  }
}

TEST_F(TrainingRunTest, ACallThatIsNotRepeatedFindsAtOnceThatThePlannerIsGone) {
  auto planner = std::make_unique<FakePlanner>(4);
  PlannerClient client(planner->address());
  client.RepeatNoCall();
  TrainingRun run(client, Job(4), source_);
  ASSERT_TRUE(Step(run).ok());
  planner.reset();
  const absl::Time begin = absl::Now();
  ASSERT_TRUE(Step(run).ok());
  EXPECT_LT(absl::Now() - begin, absl::Seconds(1));
  EXPECT_GT(run.silence(), absl::ZeroDuration());
}

TEST_F(TrainingRunTest, WhatIsWrongWithTheJobEndsItAtOnce) {
  FakePlanner planner(4);
  PlannerClient client(planner.address());
  TrainingRun run(client, Job(4), source_);
  planner.FailGetJob(grpc::StatusCode::NOT_FOUND, 1);
  EXPECT_EQ(Step(run).code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace penstock::cli
