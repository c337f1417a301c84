// Choosing the stages of a job takes seconds: it is a state of the job, and holds up nobody.
#include "tests/unit/service/engine_fixture.h"

namespace penstock {
namespace {

using testing::HasSubstr;

class JobPreparationTest : public EngineFixture {
 protected:
  // Registers a job whose preparation waits for go_on_.
  void StartPreparation(const v1::JobSpec& spec) {
    planners_->set_preparation_gate([this] {
      started_.Notify();
      go_on_.Await();
    });
    Ask(spec);
    ASSERT_TRUE(started_.Await());
  }

  void Ask(const v1::JobSpec& spec) {
    engine_->RegisterJob(spec, [this](const absl::StatusOr<v1::JobState>& state) {
      {
        MutexLock lock(&mutex_);
        answers_.push_back(state.ok() ? v1::JobState_Name(*state) : std::string(state.status().message()));
      }
      answered_.Notify();
    });
  }

  std::vector<std::string> AwaitAnswers(int count) {
    for (int i = 0; i < count; ++i) EXPECT_TRUE(answered_.Await());
    MutexLock lock(&mutex_);
    return answers_;
  }

  Event started_, go_on_, answered_;
  Mutex mutex_;
  std::vector<std::string> answers_ ABSL_GUARDED_BY(mutex_);
};

TEST_F(JobPreparationTest, AJobThatIsPreparedHoldsUpNobody) {
  const auto live = Register(MakeJob("job"));
  FormEpoch(*live, 101);
  StartPreparation(MakeJob("large"));

  EXPECT_TRUE(live->Heartbeat(MakeHeartbeat(1, 102, 1)).ok());
  EXPECT_EQ(engine_->Jobs().size(), 2);
  const auto large = *engine_->FindJob("large");
  EXPECT_EQ(large->State(), v1::JOB_STATE_PREPARING);
  EXPECT_THAT(large->SubmitBatches(MakeSubmission("large", 0, 1)),
              Fails(absl::StatusCode::kUnavailable, "is being prepared"));
  EXPECT_THAT(large->RegisterWorker(MakeRegistration(7)),
              Fails(absl::StatusCode::kUnavailable, "is being prepared"));

  go_on_.Notify();
  EXPECT_THAT(AwaitAnswers(1), testing::ElementsAre("JOB_STATE_REGISTERED"));
  EXPECT_TRUE(large->SubmitBatches(MakeSubmission("large", 0, 1)).ok());
}

TEST_F(JobPreparationTest, TheSameRegistrationAgainWaitsAndPaysNothing) {
  StartPreparation(MakeJob("job"));
  Ask(MakeJob("job"));
  Ask(MakeJob("job"));
  go_on_.Notify();
  EXPECT_THAT(AwaitAnswers(3), testing::Each("JOB_STATE_REGISTERED"));
  planners_->set_preparation_gate([] { FAIL() << "it is prepared again"; });
  EXPECT_TRUE(RegisterJob(MakeJob("job")).ok());
}

TEST_F(JobPreparationTest, AJobThatCannotBePreparedIsRefusedAndItsIdIsFree) {
  EXPECT_THAT(RegisterJob(MakeJob("job", FakeBatchPlannerFactory::kTooLarge)),
              Fails(absl::StatusCode::kInvalidArgument, "job.mesh.pipeline"));
  EXPECT_THAT(engine_->FindJob("job"), Fails(absl::StatusCode::kNotFound, "job"));
  EXPECT_TRUE(RegisterJob(MakeJob("job")).ok());
  ASSERT_TRUE(Flush().ok());
  EXPECT_EQ(store_->Load()->size(), 1);
}

TEST_F(JobPreparationTest, AJobThatIsDeletedMeanwhileTellsWhoWaits) {
  StartPreparation(MakeJob("job"));
  ASSERT_TRUE(engine_->DeleteJob("job", /*force=*/false).ok());
  EXPECT_THAT(AwaitAnswers(1), testing::ElementsAre(HasSubstr("was deleted")));
  go_on_.Notify();
}

TEST_F(JobPreparationTest, AStopTellsWhoWaits) {
  StartPreparation(MakeJob("job"));
  go_on_.Notify();
  engine_->Shutdown(absl::ZeroDuration());
  EXPECT_EQ(AwaitAnswers(1).size(), 1);
}

TEST_F(JobPreparationTest, WorkersKeepAJobFromBeingDeletedUnlessByForce) {
  const auto job = Register(MakeJob("job"));
  FormEpoch(*job, 101);
  Reader reader(job, StreamRequest(0, 0, 101, 1));
  EXPECT_THAT(engine_->DeleteJob("job", /*force=*/false),
              Fails(absl::StatusCode::kFailedPrecondition, "has workers"));
  ASSERT_TRUE(engine_->DeleteJob("job", /*force=*/true).ok());
  EXPECT_THAT(reader.End(), Fails(absl::StatusCode::kNotFound, "was deleted"));
  EXPECT_THAT(job->Heartbeat(MakeHeartbeat(1, 102, 1)), Fails(absl::StatusCode::kNotFound, "was deleted"));
}

TEST_F(JobPreparationTest, JobsThatAreOverExpireButNotUnderAReader) {
  Start({.keep_finished_jobs = absl::Hours(2), .keep_failed_jobs = absl::Hours(1)});
  const auto finished = Register(MakeJob("job"));
  ASSERT_TRUE(finished->SubmitBatches(MakeSubmission("job", 0, 1)).ok());
  ASSERT_TRUE(finished->Drain().ok());
  auto reader = std::make_unique<Reader>(finished, StreamRequest(0));
  ASSERT_TRUE(reader->Next().has_value()) << "planned before hours go by";
  const auto live = Register(MakeJob("live"));
  ASSERT_TRUE(live->SubmitBatches(MakeSubmission("live", 0, 1)).ok());
  clock_.Advance(absl::Hours(3));
  engine_->Tick();
  EXPECT_TRUE(engine_->FindJob("job").ok());
  reader.reset();
  engine_->Tick();
  EXPECT_THAT(engine_->FindJob("job"), Fails(absl::StatusCode::kNotFound, "job"));
  EXPECT_TRUE(engine_->FindJob("live").ok());
}

TEST_F(JobPreparationTest, JobsThatNobodyStartsExpireButNotUnderAReader) {
  Start({.keep_unstarted_jobs = absl::Hours(1)});
  const auto job = Register(MakeJob("job"));
  auto reader = std::make_unique<Reader>(job, StreamRequest(0));
  EXPECT_TRUE(reader->IsPending());
  clock_.Advance(absl::Hours(2));
  engine_->Tick();
  EXPECT_TRUE(engine_->FindJob("job").ok());
  reader.reset();
  engine_->Tick();
  EXPECT_THAT(engine_->FindJob("job"), Fails(absl::StatusCode::kNotFound, "job"));
}

TEST_F(JobPreparationTest, TheOldestJobThatIsOverMakesRoom) {
  Start({.quotas = {.jobs = 3}});
  for (const char* id : {"b", "a", "c"}) {
    const auto job = Register(MakeJob(id));
    if (*id != 'c') {
      ASSERT_TRUE(job->Drain().ok());
    }
    clock_.Advance(absl::Minutes(1));
  }
  Register(MakeJob("d"));
  EXPECT_THAT(engine_->FindJob("b"), Fails(absl::StatusCode::kNotFound, "b"));
  EXPECT_TRUE(engine_->FindJob("a").ok());
}

TEST_F(JobPreparationTest, AJobWhoseEpochFailedMakesRoomAfterAWhile) {
  Start({.quotas = {.jobs = 1}, .keep_failed_jobs = absl::Hours(1)});
  const auto job = Register(MakeJob("job"));
  FormEpoch(*job, 101);
  clock_.Advance(absl::Seconds(2));
  engine_->Tick();
  EXPECT_EQ(job->State(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(RegisterJob(MakeJob("next")), Fails(absl::StatusCode::kResourceExhausted, "delete one"));
  clock_.Advance(absl::Hours(2));
  EXPECT_TRUE(RegisterJob(MakeJob("next")).ok());
}

TEST_F(JobPreparationTest, DeletingAJobStopsItsPreparation) {
  Ask(MakeJob("endless", FakeBatchPlannerFactory::kUntilStopped));
  ASSERT_EQ(engine_->Jobs().size(), 1);
  ASSERT_TRUE(engine_->DeleteJob("endless", /*force=*/false).ok());
  EXPECT_THAT(AwaitAnswers(1), testing::ElementsAre(HasSubstr("was deleted")));
  // The threads are free again: so many preparations would never end beside one that goes on.
  for (const char* id : {"a", "b", "c"}) Register(MakeJob(id));
}

TEST_F(JobPreparationTest, APreparationThatNobodyWaitsForIsStoppedAndItsJobForgotten) {
  const v1::JobSpec spec = MakeJob("endless", FakeBatchPlannerFactory::kUntilStopped);
  const auto ignore = [](const absl::StatusOr<v1::JobState>&) {};
  const PlannerEngine::Registration first = engine_->RegisterJob(spec, ignore);
  const PlannerEngine::Registration second = engine_->RegisterJob(spec, ignore);
  engine_->StopWaiting(first);
  EXPECT_TRUE(engine_->FindJob("endless").ok());
  engine_->StopWaiting(second);
  EXPECT_THAT(engine_->FindJob("endless").status(), Fails(absl::StatusCode::kNotFound, "endless"));
  for (const char* id : {"a", "b", "c"}) Register(MakeJob(id));
}

TEST_F(JobPreparationTest, AJobThatWasPreparedStaysWhenItsClientGoes) {
  const auto job = Register(MakeJob("job"));
  const PlannerEngine::Registration again =
      engine_->RegisterJob(MakeJob("job"), [](const absl::StatusOr<v1::JobState>&) {});
  engine_->StopWaiting(again);
  EXPECT_TRUE(engine_->FindJob("job").ok());
}

TEST_F(JobPreparationTest, TypicalSamplesThatTakeMoreMemoryThanThereIsAreRefusedAtOnce) {
  Start({.planning_memory_bytes = int64_t{256} << 20});
  v1::JobSpec spec = MakeJob("large");
  spec.mutable_planning()->set_typical_batch_size(1'000'000);
  EXPECT_THAT(RegisterJob(spec), Fails(absl::StatusCode::kInvalidArgument, "job.planning.typical_samples"));
  EXPECT_TRUE(engine_->Jobs().empty());
}

}  // namespace
}  // namespace penstock
