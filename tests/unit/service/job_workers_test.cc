// Workers of a job: epochs, failures, restarts, reports.
#include "penstock/client/finished_job.h"
#include "tests/unit/service/engine_fixture.h"

namespace penstock {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class JobWorkersTest : public EngineFixture {
 protected:
  // Two ranks, ten batches, workers 101 and 102.
  std::shared_ptr<Job> RunningJob(uint64_t iterations = 0) {
    v1::JobSpec spec = MakeJob("job");
    spec.mutable_training()->set_iterations(iterations);
    const auto job = Register(spec);
    EXPECT_TRUE(job->SubmitBatches(MakeSubmission("job", 0, 10)).ok());
    FormEpoch(*job, 101);
    return job;
  }

  static std::vector<uint64_t> SummedUp(const Job& job, uint64_t from = 0) {
    std::vector<uint64_t> iterations;
    const v1::GetJobResponse response = job.Get(from);
    for (const auto& summary : response.iterations()) iterations.push_back(summary.iteration());
    return iterations;
  }

  static std::string FailureOf(Job& job, uint32_t rank, uint64_t incarnation, uint64_t epoch) {
    const auto answer = job.Heartbeat(MakeHeartbeat(rank, incarnation, epoch));
    EXPECT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(answer->state(), v1::EPOCH_STATE_FAILED);
    return answer->failure();
  }
};

TEST_F(JobWorkersTest, RunsWhenAllRanksAndTheRendezvousAreThere) {
  const auto job = Register(MakeJob("job"));
  EXPECT_EQ(job->State(), v1::JOB_STATE_REGISTERED);
  ASSERT_TRUE(job->RegisterWorker(MakeRegistration(101)).ok());
  EXPECT_EQ(job->Heartbeat(MakeHeartbeat(0, 101, 1))->state(), v1::EPOCH_STATE_FORMING);
  ASSERT_TRUE(job->RegisterWorker(MakeRegistration(102)).ok());
  EXPECT_EQ(job->State(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(job->Heartbeat(MakeHeartbeat(1, 102, 1))->state(), v1::EPOCH_STATE_READY);
}

TEST_F(JobWorkersTest, ARegistrationTellsTheJobAndTheHeartbeatInterval) {
  const auto job = Register(MakeJob("job"));
  const auto response = job->RegisterWorker(MakeRegistration(101));
  EXPECT_EQ(response->job().job_id(), "job");
  EXPECT_EQ(response->heartbeat_interval_ms(), 200);
}

TEST_F(JobWorkersTest, AJobOfNIterationsFinishesWhenAllRanksReportedThem) {
  const auto job = RunningJob(10);
  Train(job, 0, 9, 101);
  EXPECT_EQ(job->State(), v1::JOB_STATE_RUNNING);
  Reader last(job, StreamRequest(0, 9, 101, 1));
  ASSERT_TRUE(last.Next().has_value());
  Reader other(job, StreamRequest(1, 9, 102, 1));
  ASSERT_TRUE(other.Next().has_value());
  ASSERT_TRUE(job->ReportIteration(MakeReport(0, 9, 101, 1)).ok());
  EXPECT_TRUE(last.IsPending());
  ASSERT_TRUE(job->ReportIteration(MakeReport(1, 9, 102, 1)).ok());

  EXPECT_EQ(job->State(), v1::JOB_STATE_FINISHED);
  EXPECT_TRUE(last.End().ok());
  EXPECT_TRUE(other.End().ok());
  EXPECT_EQ(job->Heartbeat(MakeHeartbeat(0, 101, 1))->state(), v1::EPOCH_STATE_FINISHED);
  const absl::Status refused = job->RegisterWorker(MakeRegistration(103)).status();
  EXPECT_THAT(refused, Fails(absl::StatusCode::kFailedPrecondition, "finished"));
  EXPECT_THAT(FinishedJob(refused), testing::Optional(10));
}

TEST_F(JobWorkersTest, AStreamOfAFinishedJobEndsInOrderForAWorkerThatHasLeft) {
  const auto job = RunningJob(10);
  Reader reader(job, StreamRequest(0, 9, 101, 1));
  ASSERT_TRUE(reader.Next().has_value());
  Train(job, 0, 10, 101);
  auto leaving = MakeHeartbeat(0, 101, 1);
  leaving.set_leaving(true);
  ASSERT_TRUE(job->Heartbeat(leaving).ok());
  EXPECT_TRUE(reader.End().ok());
  // It may read again what is held, too.
  EXPECT_TRUE(Reader(job, StreamRequest(0, 9, 101, 1)).Next().has_value());
}

TEST_F(JobWorkersTest, ADrainedJobFinishesWhenAllAcceptedIterationsAreReported) {
  const auto job = RunningJob();
  EXPECT_EQ(*job->Drain(), v1::JOB_STATE_DRAINING);
  EXPECT_THAT(job->SubmitBatches(MakeSubmission("job", 10, 11)),
              Fails(absl::StatusCode::kFailedPrecondition, "drains"));
  Train(job, 0, 10, 101);
  EXPECT_EQ(job->State(), v1::JOB_STATE_FINISHED);
}

TEST_F(JobWorkersTest, SumsUpCompletedIterations) {
  const auto job = RunningJob();
  // All ten are planned then: several are at a time, and not always in order.
  for (uint64_t iteration = 0; iteration < 10; ++iteration) {
    Reader reader(job, StreamRequest(0, iteration, 101, 1));
    ASSERT_TRUE(reader.Next().has_value());
  }
  Train(job, 0, 3, 101);
  EXPECT_THAT(SummedUp(*job), ElementsAre(0, 1, 2));
  EXPECT_THAT(SummedUp(*job, 2), ElementsAre(2));
  EXPECT_EQ(job->LastSummary()->planned_ahead(), 7);
  EXPECT_DOUBLE_EQ(job->LastSummary()->loss(), 3.0);
  EXPECT_EQ(job->Status().completed_iteration(), 3);
  EXPECT_EQ(job->GetIteration(2)->reports_size(), 2);
  EXPECT_EQ(job->GetIteration(5)->reports_size(), 0);
}

TEST_F(JobWorkersTest, AReportAgainChangesNothing) {
  const auto job = RunningJob();
  Train(job, 0, 2, 101);
  auto again = MakeReport(0, 1, 101, 1);
  again.set_loss(99);
  EXPECT_TRUE(job->ReportIteration(again).ok());
  EXPECT_DOUBLE_EQ(job->LastSummary()->loss(), 3.0);
}

TEST_F(JobWorkersTest, RefusesWrongReports) {
  const auto job = RunningJob();
  Reader reader(job, StreamRequest(0, 0, 101, 1));
  ASSERT_TRUE(reader.Next().has_value());
  EXPECT_THAT(job->ReportIteration(MakeReport(0, 1, 101, 1)),
              Fails(absl::StatusCode::kFailedPrecondition, "iteration 1 was not sent to rank 0"));
  EXPECT_THAT(job->ReportIteration(MakeReport(1, 0, 102, 1)),
              Fails(absl::StatusCode::kFailedPrecondition, "was not sent to rank 1"));
  EXPECT_THAT(job->ReportIteration(MakeReport(0, 0, 999, 1)), Fails(absl::StatusCode::kAborted, "999"));
  EXPECT_THAT(job->ReportIteration(MakeReport(0, 0, 101, 7)), Fails(absl::StatusCode::kAborted, "epoch 7"));
  EXPECT_THAT(job->ReportIteration(MakeReport(0, 0)), Fails(absl::StatusCode::kAborted, "stale"));
  EXPECT_THAT(job->ReportIteration(MakeReport(5, 0)), Fails(absl::StatusCode::kInvalidArgument, "rank is 5"));
  auto report = MakeReport(0, 0, 101, 1);
  report.mutable_instructions(2)->set_id(0);
  EXPECT_THAT(job->ReportIteration(report), Fails(absl::StatusCode::kInvalidArgument,
                                                  "instructions[2].id is 0, which the report has already"));
  report.mutable_instructions(1)->set_id(3);
  EXPECT_THAT(job->ReportIteration(report),
              Fails(absl::StatusCode::kInvalidArgument, "instructions[1].id is 3"));
}

TEST_F(JobWorkersTest, AReaderAcknowledgesAJobWithoutWorkers) {
  const auto job = Register(MakeJob("job", 1));
  ASSERT_TRUE(job->SubmitBatches(MakeSubmission("job", 0, 16)).ok());
  EXPECT_FALSE(job->SubmitBatches(MakeSubmission("job", 16, 17)).ok());
  EXPECT_THAT(job->ReportIteration(MakeReport(0, 40)), Fails(absl::StatusCode::kFailedPrecondition, "40"));
  Reader reader(job, StreamRequest(0));
  ASSERT_TRUE(reader.Next().has_value());
  EXPECT_TRUE(job->ReportIteration(MakeReport(0, 0)).ok());
  EXPECT_TRUE(job->SubmitBatches(MakeSubmission("job", 16, 17)).ok());
}

TEST_F(JobWorkersTest, ALostWorkerEndsTheStreamsOfAllRanksWithItsName) {
  const auto job = RunningJob();
  Train(job, 0, 10, 101);
  Reader survivor(job, StreamRequest(0, 10, 101, 1));
  ASSERT_TRUE(survivor.IsPending());
  clock_.Advance(absl::Milliseconds(900));
  ASSERT_TRUE(job->Heartbeat(MakeHeartbeat(0, 101, 1)).ok());
  engine_->Tick();
  ASSERT_TRUE(survivor.IsPending());
  clock_.Advance(absl::Milliseconds(200));

  engine_->Tick();

  const std::string lost = "rank 1 (10.0.0.1) was lost: no heartbeat for 1.1 s";
  EXPECT_THAT(survivor.End(), Fails(absl::StatusCode::kFailedPrecondition, lost));
  EXPECT_EQ(FailureOf(*job, 0, 101, 1), lost);
  EXPECT_EQ(job->State(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(job->Status().failure(), lost);
}

TEST_F(JobWorkersTest, AReportedFailureEndsTheStreamsAtOnce) {
  const auto job = RunningJob();
  Reader reader(job, StreamRequest(1, 10, 102, 1));
  ASSERT_TRUE(reader.IsPending());
  auto heartbeat = MakeHeartbeat(0, 101, 1);
  heartbeat.set_failure("CUDA error");
  ASSERT_TRUE(job->Heartbeat(heartbeat).ok());
  EXPECT_THAT(reader.End(), Fails(absl::StatusCode::kFailedPrecondition, "reported: CUDA error"));
}

TEST_F(JobWorkersTest, AReaderWithoutIncarnationOutlivesAnEpoch) {
  const auto job = RunningJob();
  Reader reader(job, StreamRequest(0));
  auto heartbeat = MakeHeartbeat(0, 101, 1);
  heartbeat.set_failure("CUDA error");
  ASSERT_TRUE(job->Heartbeat(heartbeat).ok());
  EXPECT_TRUE(reader.Next().has_value());
}

TEST_F(JobWorkersTest, ANewEpochGoesOnFromItsCheckpointWithTheSamePlans) {
  const auto job = RunningJob();
  Train(job, 0, 6, 101);
  const std::string hash = job->GetIteration(4)->plan().content_hash();
  clock_.Advance(absl::Seconds(2));
  engine_->Tick();

  FormEpoch(*job, 201, /*first_iteration=*/4);

  EXPECT_EQ(job->State(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(job->Status().epoch(), 2);
  EXPECT_EQ(job->Status().completed_iteration(), 4);
  EXPECT_THAT(SummedUp(*job), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(job->GetIteration(4)->reports_size(), 0);
  EXPECT_EQ(Reader(job, StreamRequest(0, 4, 201, 2)).Next()->content_hash(), hash);
  EXPECT_THAT(Reader(job, StreamRequest(0, 6, 101, 1)).End(),
              Fails(absl::StatusCode::kAborted, "epoch 1 is stale"));
  EXPECT_THAT(job->Heartbeat(MakeHeartbeat(0, 101, 1)), Fails(absl::StatusCode::kAborted, "was lost"));
  Train(job, 4, 10, 201);
  EXPECT_THAT(SummedUp(*job), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
}

TEST_F(JobWorkersTest, ACheckpointMayBeAheadOfTheReports) {
  const auto job = RunningJob();
  Train(job, 0, 5, 101);
  // Iteration 5 was trained and saved, but rank 1 died before it reported.
  ASSERT_TRUE(Reader(job, StreamRequest(0, 5, 101, 1)).Next().has_value());
  ASSERT_TRUE(job->ReportIteration(MakeReport(0, 5, 101, 1)).ok());
  clock_.Advance(absl::Seconds(2));
  engine_->Tick();
  FormEpoch(*job, 201, /*first_iteration=*/6);
  EXPECT_EQ(job->Status().completed_iteration(), 6);
  Train(job, 6, 8, 201);
  EXPECT_THAT(SummedUp(*job), ElementsAre(0, 1, 2, 3, 4, 6, 7));
}

TEST_F(JobWorkersTest, RefusesAFirstIterationThatThePlannerCannotServe) {
  v1::JobSpec spec = MakeJob("job");
  spec.set_first_iteration(20);
  const auto job = Register(spec);
  EXPECT_THAT(job->RegisterWorker(MakeRegistration(101, -1, 0)),
              Fails(absl::StatusCode::kInvalidArgument, "the job starts at iteration 20"));
  EXPECT_THAT(job->RegisterWorker(MakeRegistration(101, -1, 21)),
              Fails(absl::StatusCode::kInvalidArgument, "first_iteration is 21"));
  EXPECT_TRUE(job->RegisterWorker(MakeRegistration(101, -1, 20)).ok());
}

TEST_F(JobWorkersTest, HoldsWhatTheOlderOfTwoCheckpointsNeedsWhereOneWasLeftOutAndNotMore) {
  v1::JobSpec spec = MakeJob("job", 1);
  spec.mutable_training()->set_checkpoint_interval(40);
  const auto job = Register(spec);
  for (uint64_t i = 0; i < 126; ++i) {
    ASSERT_TRUE(job->SubmitBatches(MakeSubmission("job", i, i + 1)).ok());
    ASSERT_TRUE(Reader(job, StreamRequest(0, i)).Next().has_value());
    ASSERT_TRUE(job->ReportIteration(MakeReport(0, i)).ok());
  }
  EXPECT_THAT(job->RegisterWorker(MakeRegistration(101, -1, 5)),
              Fails(absl::StatusCode::kFailedPrecondition, "iteration 5 is no longer held, the first is 6"));
  EXPECT_TRUE(job->RegisterWorker(MakeRegistration(101, -1, 6)).ok());
}

TEST_F(JobWorkersTest, WorkersThatDisagreeOnTheStartLearnWhoDid) {
  const auto job = Register(MakeJob("job"));
  ASSERT_TRUE(job->SubmitBatches(MakeSubmission("job", 0, 4)).ok());
  ASSERT_TRUE(job->RegisterWorker(MakeRegistration(101, -1, 2)).ok());
  ASSERT_TRUE(job->RegisterWorker(MakeRegistration(102, -1, 3)).ok());
  EXPECT_THAT(FailureOf(*job, 0, 101, 1), HasSubstr("rank 1 (10.0.0.1) would start at iteration 3"));
}

TEST_F(JobWorkersTest, WorkersOfAFinishedJobMayFallSilent) {
  const auto job = RunningJob(10);
  Train(job, 0, 10, 101);
  clock_.Advance(absl::Minutes(1));
  engine_->Tick();
  EXPECT_EQ(job->State(), v1::JOB_STATE_FINISHED);
  EXPECT_EQ(job->Status().failure(), "");
}

}  // namespace
}  // namespace penstock
