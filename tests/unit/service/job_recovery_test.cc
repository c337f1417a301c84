// A planner that was killed: what it acknowledged is there again, and goes on.
#include <atomic>

#include "tests/unit/service/engine_fixture.h"

namespace penstock {
namespace {

class JobRecoveryTest : public EngineFixture {
 protected:
  std::shared_ptr<Job> Killed() {
    EXPECT_TRUE(Flush().ok());
    Restart();
    return *engine_->FindJob("job");
  }

  // As a client whose calls are repeated while the job is prepared.
  void AwaitPrepared(const Job& job) { ASSERT_TRUE(RegisterJob(job.spec()).ok()); }
};

TEST_F(JobRecoveryTest, AcceptedBatchesArePlannedAndDelivered) {
  auto job = Register(MakeJob("job"));
  ASSERT_TRUE(job->SubmitBatches(MakeSubmission("job", 0, 5)).ok());
  const std::string hash = Reader(job, StreamRequest(0, 3)).Next()->content_hash();
  job.reset();

  job = Killed();

  AwaitPrepared(*job);
  EXPECT_EQ(job->Status().next_iteration(), 5);
  Reader reader(job, StreamRequest(1));
  for (uint64_t iteration = 0; iteration < 5; ++iteration) {
    const auto program = reader.Next();
    ASSERT_TRUE(program.has_value());
    EXPECT_EQ(program->iteration(), iteration);
    EXPECT_EQ(program->content_hash() == hash, iteration == 3);
  }
  EXPECT_TRUE(job->SubmitBatches(MakeSubmission("job", 3, 6)).ok());
  EXPECT_THAT(job->SubmitBatches(MakeSubmission("job", 2, 3, /*tokens=*/11)),
              Fails(absl::StatusCode::kAlreadyExists, "iteration 2"));
}

TEST_F(JobRecoveryTest, WorkersGoOnInTheirEpoch) {
  auto job = Register(MakeJob("job"));
  ASSERT_TRUE(job->SubmitBatches(MakeSubmission("job", 0, 10)).ok());
  FormEpoch(*job, 101);
  Train(job, 0, 4, 101);
  // One rank is ahead: the other has not reported iteration 4.
  ASSERT_TRUE(Reader(job, StreamRequest(0, 4, 101, 1)).Next().has_value());
  ASSERT_TRUE(job->ReportIteration(MakeReport(0, 4, 101, 1)).ok());
  job.reset();

  job = Killed();

  AwaitPrepared(*job);
  EXPECT_EQ(job->State(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(job->Heartbeat(MakeHeartbeat(1, 102, 1))->state(), v1::EPOCH_STATE_READY);
  EXPECT_EQ(job->Status().completed_iteration(), 4);
  EXPECT_EQ(job->Get(0).iterations_size(), 4);
  // The report of an iteration that was sent before the planner was killed.
  Reader(job, StreamRequest(1, 4, 102, 1)).Next();
  ASSERT_TRUE(job->ReportIteration(MakeReport(1, 4, 102, 1)).ok());
  EXPECT_EQ(job->Status().completed_iteration(), 5);
  EXPECT_DOUBLE_EQ(job->LastSummary()->loss(), 3.0);
  Train(job, 5, 10, 101);
  EXPECT_EQ(job->Status().completed_iteration(), 10);
}

TEST_F(JobRecoveryTest, WorkersHaveAsLongAsEverToBeHeardOfAgain) {
  auto job = Register(MakeJob("job"));
  FormEpoch(*job, 101);
  clock_.Advance(absl::Milliseconds(900));
  job.reset();
  job = Killed();
  clock_.Advance(absl::Milliseconds(900));
  engine_->Tick();
  EXPECT_EQ(job->Status().failure(), "");
  clock_.Advance(absl::Milliseconds(200));
  engine_->Tick();
  EXPECT_THAT(job->Status().failure(), testing::HasSubstr("was lost"));
}

TEST_F(JobRecoveryTest, WorkersMayBeAheadOfAStoreFromABackupUntilAnIterationIsCompleted) {
  auto job = Register(MakeJob("job"));
  ASSERT_TRUE(job->SubmitBatches(MakeSubmission("job", 0, 4)).ok());
  EXPECT_THAT(job->RegisterWorker(MakeRegistration(101, 0, 9)),
              Fails(absl::StatusCode::kInvalidArgument, "batches only to before 4"));
  job.reset();
  ASSERT_TRUE(Flush().ok());
  engine_.reset();
  store::v1::Event restored;
  restored.mutable_job_restored();
  const uint64_t events = store_->Load()->front().events.size();
  ASSERT_TRUE(store_
                  ->Commit({JobChange{
                      .job = 1, .first_sequence = events + 1, .events = {restored.SerializeAsString()}}})
                  .ok());
  Restart();
  job = *engine_->FindJob("job");
  AwaitPrepared(*job);

  // A worker of before the backup, which has run on.
  FormEpoch(*job, 201, /*first_iteration=*/9);
  EXPECT_THAT(Reader(job, StreamRequest(0, 30, 201, 1)).End(),
              Fails(absl::StatusCode::kAborted, "restored from a backup"));
  ASSERT_TRUE(job->SubmitBatches(MakeSubmission("job", 4, 12)).ok());
  Train(job, 9, 11, 201);
  EXPECT_EQ(job->Status().completed_iteration(), 11);
  clock_.Advance(absl::Seconds(2));
  engine_->Tick();
  EXPECT_THAT(job->RegisterWorker(MakeRegistration(301, 0, 20)),
              Fails(absl::StatusCode::kInvalidArgument, "batches only to before 12"));
}

TEST_F(JobRecoveryTest, ADeletedJobIsNotThere) {
  Register(MakeJob("job"));
  Register(MakeJob("other"));
  ASSERT_TRUE(engine_->DeleteJob("job", /*force=*/false).ok());
  ASSERT_TRUE(Flush().ok());
  Restart();
  EXPECT_THAT(engine_->FindJob("job"), Fails(absl::StatusCode::kNotFound, "job"));
  EXPECT_TRUE(engine_->FindJob("other").ok());
  // Its key is not used again.
  Register(MakeJob("job"));
  ASSERT_TRUE(Flush().ok());
  EXPECT_EQ(store_->Load()->back().job, 3);
}

TEST_F(JobRecoveryTest, AnUpgradedPlannerThatPlansOtherwiseStartsTheWorkersAgain) {
  auto job = Register(MakeJob("job"));
  ASSERT_TRUE(job->SubmitBatches(MakeSubmission("job", 0, 2)).ok());
  FormEpoch(*job, 101);
  ASSERT_TRUE(Reader(job, StreamRequest(0, 0, 101, 1)).Next().has_value());
  ASSERT_TRUE(Reader(job, StreamRequest(0, 1, 101, 1)).Next().has_value());
  job.reset();
  ASSERT_TRUE(Flush().ok());
  planners_->set_version("2");

  job = Killed();

  AwaitPrepared(*job);
  EXPECT_THAT(Reader(job, StreamRequest(0, 2, 101, 1)).End(),
              Fails(absl::StatusCode::kFailedPrecondition, "upgraded planner"));
  FormEpoch(*job, 201);
  EXPECT_EQ(Reader(job, StreamRequest(0, 0, 201, 2)).Next()->content_hash(), "hash 2 of iteration 0");
}

// Who only looks at what is done does nothing to the job.
class LookBackTest : public JobRecoveryTest, public testing::WithParamInterface<std::string> {
 protected:
  // A job that trains on a planner that was killed and is of another version now.
  std::shared_ptr<Job> UpgradedWhileTraining() {
    auto job = Register(MakeJob("job"));
    EXPECT_TRUE(job->SubmitBatches(MakeSubmission("job", 0, 6)).ok());
    FormEpoch(*job, 101);
    Train(job, 0, 6, 101);
    job.reset();
    EXPECT_TRUE(Flush().ok());
    planners_->set_version(GetParam());
    job = Killed();
    AwaitPrepared(*job);
    return job;
  }

  // Why there is none.
  static absl::Status LookAt(Job& job, uint64_t iteration) {
    absl::Status status;
    do {
      status = job.GetIteration(iteration).status();
    } while (absl::IsUnavailable(status));
    return status;
  }
};

INSTANTIATE_TEST_SUITE_P(Version, LookBackTest,
                         testing::Values("2", std::string(FakeBatchPlanner::kMakesNone)),
                         [](const auto& info) { return info.index == 0 ? "PlansOtherwise" : "MakesNoPlan"; });

TEST_P(LookBackTest, APlanThatCannotBeMadeAgainFailsNeitherEpochNorJob) {
  const auto job = UpgradedWhileTraining();
  EXPECT_THAT(LookAt(*job, 2).message(), testing::HasSubstr("the plan of 2, which is done, cannot be made"));
  EXPECT_EQ(job->Status().failure(), "");
  EXPECT_EQ(job->State(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(job->Heartbeat(MakeHeartbeat(1, 102, 1))->state(), v1::EPOCH_STATE_READY);
}

}  // namespace
}  // namespace penstock
