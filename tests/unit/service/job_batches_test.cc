// Admission, planning and delivery of a job.
#include <atomic>
#include <memory>

#include "penstock/client/retry_iteration.h"
#include "tests/unit/service/engine_fixture.h"

namespace penstock {
namespace {

using testing::HasSubstr;

class JobBatchesTest : public EngineFixture {};

TEST_F(JobBatchesTest, DeliversPlansInIterationOrder) {
  // Iteration 0 is planned last: its plan waits until 1 and 2 are made.
  Event others_done;
  std::atomic<int> others = 0;
  Start({.planning_threads = 2}, [&](const v1::Batch& batch) {
    if (batch.iteration() == 0) {
      others_done.Await();
    } else if (++others == 2) {
      others_done.Notify();
    }
  });
  const auto job = Register(MakeJob("job"));
  Reader reader(job, StreamRequest(1));
  ASSERT_TRUE(reader.IsPending());
  ASSERT_TRUE(job->SubmitBatches(MakeSubmission("job", 0, 3)).ok());
  for (uint64_t iteration = 0; iteration < 3; ++iteration) {
    const auto program = reader.Next();
    ASSERT_TRUE(program.has_value());
    EXPECT_EQ(program->iteration(), iteration);
    EXPECT_EQ(program->program().rank(), 1);
  }
  EXPECT_TRUE(reader.IsPending());
}

TEST_F(JobBatchesTest, AStreamStartsAtAnyIterationThatIsHeld) {
  const auto job = Register(MakeJob("job"));
  ASSERT_TRUE(job->SubmitBatches(MakeSubmission("job", 0, 10)).ok());
  for (uint64_t from : {0, 4, 9}) {
    Reader reader(job, StreamRequest(0, from));
    EXPECT_EQ(reader.Next()->iteration(), from);
  }
}

TEST_F(JobBatchesTest, TakesTheSameContentAgainAndRefusesOther) {
  const auto job = Register(MakeJob("job"));
  ASSERT_TRUE(job->SubmitBatches(MakeSubmission("job", 0, 3)).ok());
  EXPECT_EQ(job->SubmitBatches(MakeSubmission("job", 1, 4))->next_iteration(), 4);
  EXPECT_THAT(job->SubmitBatches(MakeSubmission("job", 2, 3, /*tokens=*/11)),
              Fails(absl::StatusCode::kAlreadyExists, "iteration 2"));
}

TEST_F(JobBatchesTest, TakesAllBatchesOfARequestOrNone) {
  const auto job = Register(MakeJob("job"));
  auto request = MakeSubmission("job", 0, 3);
  request.mutable_batches(2)->mutable_samples(1)->set_target_tokens(FakeBatchPlanner::kTooLong);
  EXPECT_THAT(job->SubmitBatches(request), Fails(absl::StatusCode::kInvalidArgument,
                                                 "batches[2].samples[1] of 1000001 tokens does not fit"));
  EXPECT_EQ(job->Status().next_iteration(), 0);
}

TEST_F(JobBatchesTest, TheWindowMovesWithTheSlowestRank) {
  v1::JobSpec spec = MakeJob("job");
  spec.set_look_ahead_window(4);
  const auto job = Register(spec);
  ASSERT_TRUE(job->SubmitBatches(MakeSubmission("job", 0, 4)).ok());
  const absl::Status refused = job->SubmitBatches(MakeSubmission("job", 4, 5)).status();
  EXPECT_THAT(refused,
              Fails(absl::StatusCode::kResourceExhausted, "iteration 4 is beyond the look-ahead window"));
  EXPECT_THAT(RetryIteration(refused), testing::Optional(4));
  // Nor is it looked at.
  auto too_long = MakeSubmission("job", 4, 5);
  too_long.mutable_batches(0)->mutable_samples(1)->set_target_tokens(FakeBatchPlanner::kTooLong);
  EXPECT_THAT(job->SubmitBatches(too_long), Fails(absl::StatusCode::kResourceExhausted, "window"));

  FormEpoch(*job, 101);
  Train(job, 0, 2, 101);

  EXPECT_EQ(job->SubmitBatches(MakeSubmission("job", 4, 6))->next_iteration(), 6);
  EXPECT_FALSE(job->SubmitBatches(MakeSubmission("job", 6, 7)).ok());
}

TEST_F(JobBatchesTest, MoreBatchesThanTheQueueHoldsArePlannedOneAfterAnother) {
  Start({.planning_threads = 1, .queue_capacity = 2});
  const auto job = Register(MakeJob("job"));
  ASSERT_TRUE(job->SubmitBatches(MakeSubmission("job", 0, 16)).ok());
  Reader reader(job, StreamRequest(0));
  for (uint64_t iteration = 0; iteration < 16; ++iteration) EXPECT_EQ(reader.Next()->iteration(), iteration);
}

TEST_F(JobBatchesTest, BytesAheadAreBoundedToo) {
  Start({.job_memory_bytes = 4096});
  v1::JobSpec spec = MakeJob("job", 1);
  spec.set_look_ahead_window(1024);
  const auto job = Register(spec);
  absl::Status refused;
  uint64_t taken = 0;
  while (refused.ok() && taken < 1024) {
    refused = job->SubmitBatches(MakeSubmission("job", taken, taken + 1)).status();
    if (refused.ok()) ++taken;
  }
  EXPECT_LT(taken, 64);
  EXPECT_THAT(refused, Fails(absl::StatusCode::kResourceExhausted, "the limit is 2048"));
  EXPECT_THAT(RetryIteration(refused), testing::Optional(taken));
  // What is needed next is planned all the same, and room comes with every report.
  for (uint64_t iteration = 0; iteration < taken; ++iteration) {
    ASSERT_TRUE(Reader(job, StreamRequest(0, iteration)).Next().has_value());
    ASSERT_TRUE(job->ReportIteration(MakeReport(0, iteration)).ok());
  }
  EXPECT_TRUE(job->SubmitBatches(MakeSubmission("job", taken, taken + 1)).ok());
  EXPECT_LT(job->MemoryBytes(), 3 * 4096);
}

// Else a job that is fed as fast as it may be would be planned only as fast as it reports.
TEST_F(JobBatchesTest, AJobWithAsManyBatchesAsItMayHaveIsPlannedAhead) {
  // It outlives the engine, which plans on when the test is over.
  const auto planned = std::make_shared<Event>();
  Start({.job_memory_bytes = size_t{64} << 10}, [planned](const v1::Batch&) { planned->Notify(); });
  v1::JobSpec spec = MakeJob("job", 1);
  spec.set_look_ahead_window(1024);
  const auto job = Register(spec);
  absl::Status refused;
  for (uint64_t i = 0; refused.ok(); ++i)
    refused = job->SubmitBatches(MakeSubmission("job", i, i + 1)).status();
  EXPECT_THAT(refused, Fails(absl::StatusCode::kResourceExhausted, "batches ahead"));
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(planned->Await());
}

TEST_F(JobBatchesTest, APlanThatWasForgottenIsMadeAgain) {
  std::atomic<int> made = 0;
  Start({.job_memory_bytes = 8192}, [&](const v1::Batch&) { ++made; });
  const auto job = Register(MakeJob("job", 1));
  std::string hash;
  for (uint64_t i = 0; i < 30; ++i) {
    ASSERT_TRUE(job->SubmitBatches(MakeSubmission("job", i, i + 1)).ok());
    const auto program = Reader(job, StreamRequest(0, i)).Next();
    ASSERT_TRUE(program.has_value());
    if (i == 0) hash = program->content_hash();
    ASSERT_TRUE(job->ReportIteration(MakeReport(0, i)).ok());
  }
  ASSERT_EQ(made, 30);
  EXPECT_EQ(Reader(job, StreamRequest(0, 0)).Next()->content_hash(), hash);
  EXPECT_EQ(made, 31);
}

TEST_F(JobBatchesTest, OldPlansLeaveTheMemoryAndThoseThatAreAskedForAgainStay) {
  std::atomic<int> made = 0;
  Start({}, [&](const v1::Batch&) { ++made; });
  const auto job = Register(MakeJob("job", 1));
  const auto train = [&](uint64_t from, uint64_t to) {
    for (uint64_t i = from; i < to; ++i) {
      ASSERT_TRUE(job->SubmitBatches(MakeSubmission("job", i, i + 1)).ok());
      ASSERT_TRUE(Reader(job, StreamRequest(0, i)).Next().has_value());
      ASSERT_TRUE(job->ReportIteration(MakeReport(0, i)).ok());
    }
  };
  train(0, 100);
  const size_t bytes = job->MemoryBytes();
  train(100, 300);
  EXPECT_LT(job->MemoryBytes(), bytes + bytes / 4);
  EXPECT_TRUE(job->GetIteration(300 - 64).ok());
  EXPECT_EQ(job->GetIteration(299)->reports_size(), 1);
  EXPECT_EQ(job->GetIteration(10).status().code(), absl::StatusCode::kUnavailable);
  ASSERT_TRUE(Reader(job, StreamRequest(0, 10)).Next().has_value());
  train(300, 400);
  EXPECT_EQ(made, 401);
  EXPECT_TRUE(job->GetIteration(10).ok());
}

TEST_F(JobBatchesTest, RefusesIterationsBeyondTheEndOfTheTraining) {
  v1::JobSpec spec = MakeJob("job");
  spec.mutable_training()->set_iterations(2);
  const auto job = Register(spec);
  EXPECT_THAT(job->SubmitBatches(MakeSubmission("job", 0, 3)),
              Fails(absl::StatusCode::kInvalidArgument, "batches[2].iteration is 2"));
}

TEST_F(JobBatchesTest, ABatchThatCannotBePlannedFailsTheJob) {
  const auto job = Register(MakeJob("job"));
  Reader reader(job, StreamRequest(0));
  ASSERT_TRUE(job->SubmitBatches(MakeSubmission("job", 0, 1, FakeBatchPlanner::kNoPlan)).ok());
  EXPECT_THAT(reader.End(), Fails(absl::StatusCode::kFailedPrecondition, "iteration 0 cannot be planned"));
  EXPECT_EQ(job->State(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(job->Status().failure(), HasSubstr("no plan fits in memory"));
  EXPECT_THAT(job->SubmitBatches(MakeSubmission("job", 1, 2)),
              Fails(absl::StatusCode::kFailedPrecondition, "no plan fits in memory"));
  EXPECT_THAT(job->RegisterWorker(MakeRegistration(1)),
              Fails(absl::StatusCode::kFailedPrecondition, "cannot be planned"));
  EXPECT_THAT(job->Drain(), Fails(absl::StatusCode::kFailedPrecondition, "no plan fits in memory"));
}

TEST_F(JobBatchesTest, WorkersLearnThatABatchCannotBePlanned) {
  const auto job = Register(MakeJob("job"));
  FormEpoch(*job, 101);
  Reader reader(job, StreamRequest(0, 0, 101, 1));
  ASSERT_TRUE(job->SubmitBatches(MakeSubmission("job", 0, 1, FakeBatchPlanner::kNoPlan)).ok());
  EXPECT_THAT(reader.End(), Fails(absl::StatusCode::kFailedPrecondition, "no plan fits"));
  const auto answer = job->Heartbeat(MakeHeartbeat(1, 102, 1));
  EXPECT_EQ(answer->state(), v1::EPOCH_STATE_FAILED);
  EXPECT_THAT(answer->failure(), HasSubstr("no plan fits"));
}

TEST_F(JobBatchesTest, APlanThatBreaksARuleIsNeverDelivered) {
  const auto job = Register(MakeJob("job"));
  Reader reader(job, StreamRequest(0));
  ASSERT_TRUE(job->SubmitBatches(MakeSubmission("job", 0, 1, FakeBatchPlanner::kBadPlan)).ok());
  EXPECT_THAT(reader.End(), Fails(absl::StatusCode::kFailedPrecondition, "INTERNAL: the plan breaks rule 2"));
  EXPECT_THAT(job->GetIteration(0), Fails(absl::StatusCode::kOutOfRange, "is not held"));
}

TEST_F(JobBatchesTest, ASlowReaderFallsOutOfTheHistory) {
  v1::JobSpec spec = MakeJob("job", 1);
  spec.mutable_training()->set_checkpoint_interval(1);
  const auto job = Register(spec);
  Reader slow(job, StreamRequest(0));
  for (uint64_t i = 0; i < 80; ++i) {
    ASSERT_TRUE(job->SubmitBatches(MakeSubmission("job", i, i + 1)).ok());
    ASSERT_TRUE(Reader(job, StreamRequest(0, i)).Next().has_value());
    ASSERT_TRUE(job->ReportIteration(MakeReport(0, i)).ok());
  }
  // 80 are completed, the last 64 of them are held.
  EXPECT_THAT(slow.End(),
              Fails(absl::StatusCode::kOutOfRange, "iteration 0 is no longer held, the first is 16"));
  EXPECT_THAT(job->GetIteration(15), Fails(absl::StatusCode::kOutOfRange, "15"));
  EXPECT_EQ(job->GetIteration(16)->plan().iteration(), 16);
  ASSERT_TRUE(Flush().ok());
  EXPECT_FALSE(store_->GetBatch(1, 15).ok());
  EXPECT_TRUE(store_->GetBatch(1, 16).ok());
  // Hashes are kept for longer.
  EXPECT_TRUE(job->SubmitBatches(MakeSubmission("job", 3, 5)).ok());
  EXPECT_THAT(job->SubmitBatches(MakeSubmission("job", 3, 5, 11)),
              Fails(absl::StatusCode::kAlreadyExists, "3"));
}

TEST_F(JobBatchesTest, HistoryReachesBackToTheLastCheckpoint) {
  v1::JobSpec spec = MakeJob("job", 1);
  spec.mutable_training()->set_checkpoint_interval(100);
  const auto job = Register(spec);
  for (uint64_t i = 0; i < 90; ++i) {
    ASSERT_TRUE(job->SubmitBatches(MakeSubmission("job", i, i + 1)).ok());
    ASSERT_TRUE(Reader(job, StreamRequest(0, i)).Next().has_value());
    ASSERT_TRUE(job->ReportIteration(MakeReport(0, i)).ok());
  }
  EXPECT_EQ(Reader(job, StreamRequest(0)).Next()->iteration(), 0);
}

TEST_F(JobBatchesTest, NoRankBeyondTheMeshHasAStream) {
  const auto job = Register(MakeJob("job"));
  EXPECT_THAT(Reader(job, StreamRequest(2)).End(), Fails(absl::StatusCode::kInvalidArgument, "rank is 2"));
}

TEST_F(JobBatchesTest, ADrainedJobWithoutWorkersDeliversWhatItTookAndEnds) {
  const auto job = Register(MakeJob("job"));
  ASSERT_TRUE(job->SubmitBatches(MakeSubmission("job", 0, 3)).ok());
  EXPECT_EQ(*job->Drain(), v1::JOB_STATE_FINISHED);
  EXPECT_EQ(*job->Drain(), v1::JOB_STATE_FINISHED);
  Reader reader(job, StreamRequest(0, 1));
  EXPECT_EQ(reader.Next()->iteration(), 1);
  EXPECT_EQ(reader.Next()->iteration(), 2);
  EXPECT_TRUE(reader.End().ok());
  EXPECT_THAT(job->SubmitBatches(MakeSubmission("job", 3, 4)),
              Fails(absl::StatusCode::kFailedPrecondition, "finished"));
}

TEST_F(JobBatchesTest, ReadersOfADrainedJobLearnThatABatchCannotBePlanned) {
  Event go_on;
  Start({}, [&](const v1::Batch&) { go_on.Await(); });
  const auto job = Register(MakeJob("job"));
  Reader reader(job, StreamRequest(0));
  ASSERT_TRUE(job->SubmitBatches(MakeSubmission("job", 0, 1, FakeBatchPlanner::kNoPlan)).ok());
  EXPECT_EQ(*job->Drain(), v1::JOB_STATE_FINISHED);
  EXPECT_TRUE(reader.IsPending());
  testing::internal::CaptureStderr();
  go_on.Notify();
  EXPECT_THAT(reader.End(), Fails(absl::StatusCode::kFailedPrecondition, "iteration 0 cannot be planned"));
  // Not an error of the job, which is over.
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("WARNING a batch of a finished job is given up job=job reason=\"iteration 0"));
  EXPECT_EQ(job->State(), v1::JOB_STATE_FINISHED);
}

TEST_F(JobBatchesTest, TheEndOfThePlannerEndsStreamsAndRefusesBatches) {
  const auto job = Register(MakeJob("job"));
  Reader reader(job, StreamRequest(0));
  engine_->Shutdown(absl::ZeroDuration());
  EXPECT_THAT(reader.End(), Fails(absl::StatusCode::kUnavailable, "stops"));
  EXPECT_THAT(job->SubmitBatches(MakeSubmission("job", 0, 1)),
              Fails(absl::StatusCode::kUnavailable, "stops"));
}

}  // namespace
}  // namespace penstock
