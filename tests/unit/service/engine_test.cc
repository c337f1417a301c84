#include "planner/service/engine/engine.h"

#include <atomic>
#include <cmath>

#include "tests/unit/service/engine_fixture.h"

namespace penstock {
namespace {

class EngineTest : public EngineFixture {
 protected:
  // Plans a batch and waits for the answer.
  absl::StatusOr<v1::Plan> PlanBatch(const v1::PlanBatchRequest& request) {
    Event answered;
    absl::StatusOr<v1::Plan> answer = absl::UnknownError("not answered");
    engine_->PlanBatch(request, "host", [&](absl::StatusOr<v1::Plan> plan) {
      answer = std::move(plan);
      answered.Notify();
    });
    EXPECT_TRUE(answered.Await());
    return answer;
  }

  static v1::PlanBatchRequest Request(const std::string& job_id, uint32_t tokens = 10) {
    v1::PlanBatchRequest request;
    request.set_job_id(job_id);
    *request.mutable_batch() = MakeBatch(3, tokens);
    return request;
  }
};

TEST_F(EngineTest, RegistersAJobOnce) {
  EXPECT_EQ(*RegisterJob(MakeJob("job")), v1::JOB_STATE_REGISTERED);
  EXPECT_EQ(*RegisterJob(MakeJob("job")), v1::JOB_STATE_REGISTERED);
  EXPECT_EQ(engine_->Jobs().size(), 1);
  EXPECT_THAT(RegisterJob(MakeJob("job", 4)),
              Fails(absl::StatusCode::kAlreadyExists, "job 'job' exists with another specification"));
}

TEST_F(EngineTest, TheSameSpecificationMayHoldNaN) {
  v1::JobSpec spec = MakeJob("job");
  spec.mutable_profile()->add_layers()->mutable_forward_ms()->add_values(std::nan(""));
  ASSERT_TRUE(RegisterJob(spec).ok());
  EXPECT_TRUE(RegisterJob(spec).ok());
}

TEST_F(EngineTest, AJobWhoseIterationsAreAllDoneIsFinishedAtOnce) {
  v1::JobSpec spec = MakeJob("job");
  spec.set_first_iteration(10);
  spec.mutable_training()->set_iterations(10);
  EXPECT_EQ(*RegisterJob(spec), v1::JOB_STATE_FINISHED);
}

TEST_F(EngineTest, TheStatusOfAJobNamesItsOwner) {
  v1::JobSpec spec = MakeJob("job");
  spec.set_owner("ana");
  EXPECT_EQ(Register(spec)->Status().owner(), "ana");
}

TEST_F(EngineTest, AnUnknownJobIsNotFound) {
  EXPECT_THAT(engine_->FindJob("nobody"), Fails(absl::StatusCode::kNotFound, "nobody"));
}

TEST_F(EngineTest, AFinishedJobMakesRoomAndARunningOneDoesNot) {
  Start({.quotas = {.jobs = 2}});
  const auto first = Register(MakeJob("first"));
  Register(MakeJob("second"));
  EXPECT_THAT(RegisterJob(MakeJob("third")),
              Fails(absl::StatusCode::kResourceExhausted, "2 jobs that are not over"));
  ASSERT_TRUE(first->Drain().ok());
  EXPECT_TRUE(RegisterJob(MakeJob("third")).ok());
  EXPECT_THAT(engine_->FindJob("first"), Fails(absl::StatusCode::kNotFound, "first"));
}

TEST_F(EngineTest, AJobThatCannotBePlannedMakesRoom) {
  Start({.quotas = {.jobs = 1}});
  const auto job = Register(MakeJob("job"));
  ASSERT_TRUE(job->SubmitBatches(MakeSubmission("job", 0, 1, FakeBatchPlanner::kNoPlan)).ok());
  ASSERT_FALSE(Reader(job, StreamRequest(0)).End().ok());
  EXPECT_TRUE(RegisterJob(MakeJob("next")).ok());
  EXPECT_THAT(engine_->FindJob("job"), Fails(absl::StatusCode::kNotFound, "job"));
}

TEST_F(EngineTest, AStoppedPlannerIsUnavailableForPlanBatch) {
  Register(MakeJob("job"));
  engine_->Shutdown(absl::ZeroDuration());
  EXPECT_THAT(PlanBatch(Request("job")), Fails(absl::StatusCode::kUnavailable, "stops"));
}

TEST_F(EngineTest, PlansOneBatchOfARegisteredJobAndKeepsNothing) {
  const auto job = Register(MakeJob("job"));
  EXPECT_EQ(PlanBatch(Request("job"))->iteration(), 3);
  EXPECT_EQ(job->Status().next_iteration(), 0);
}

TEST_F(EngineTest, PlansOneBatchOfAJobThatIsNotRegistered) {
  v1::PlanBatchRequest request = Request("");
  *request.mutable_job() = MakeJob("what-if", 4);
  EXPECT_EQ(PlanBatch(request)->programs_size(), 4);
  EXPECT_TRUE(engine_->Jobs().empty());
}

TEST_F(EngineTest, PlanBatchSaysWhatIsWrong) {
  Register(MakeJob("job"));
  EXPECT_THAT(PlanBatch(Request("nobody")), Fails(absl::StatusCode::kNotFound, "nobody"));
  EXPECT_THAT(PlanBatch(Request("job", FakeBatchPlanner::kTooLong)),
              Fails(absl::StatusCode::kInvalidArgument, "batch.samples[0]"));
  EXPECT_THAT(PlanBatch(Request("job", FakeBatchPlanner::kNoPlan)),
              Fails(absl::StatusCode::kResourceExhausted, "no plan fits in memory"));
  EXPECT_THAT(PlanBatch(Request("job", FakeBatchPlanner::kBadPlan)),
              Fails(absl::StatusCode::kInternal, "rule 2"));
}

TEST_F(EngineTest, DoesNotPlanWhatTheClientGaveUp) {
  std::atomic<int> planned = 0;
  Event started, go_on;
  Start({.planning_threads = 1}, [&](const v1::Batch&) {
    ++planned;
    started.Notify();
    go_on.Await();
  });
  Register(MakeJob("job"));
  engine_->PlanBatch(Request("job"), "host", [](const absl::StatusOr<v1::Plan>&) {});
  ASSERT_TRUE(started.Await());
  absl::Status answer;
  const auto ticket = engine_->PlanBatch(
      Request("job"), "host", [&](absl::StatusOr<v1::Plan> plan) { answer = std::move(plan).status(); });
  engine_->CancelWhatIf(ticket);
  EXPECT_THAT(answer, Fails(absl::StatusCode::kCancelled, "client"));
  go_on.Notify();
  engine_->Shutdown(absl::Seconds(20));
  EXPECT_EQ(planned, 1);
}

TEST_F(EngineTest, ALiveJobIsPlannedBesideAWhatIfThatEndsOnlyWhenItIsGivenUp) {
  Event started;
  Start({.planning_threads = 1}, [&](const v1::Batch&) { started.Notify(); });
  const auto job = Register(MakeJob("job"));
  Event answered;
  absl::Status answer;
  const auto ticket = engine_->PlanBatch(Request("job", FakeBatchPlanner::kUntilStopped), "host",
                                         [&](absl::StatusOr<v1::Plan> plan) {
                                           answer = std::move(plan).status();
                                           answered.Notify();
                                         });
  ASSERT_TRUE(started.Await());
  ASSERT_TRUE(job->SubmitBatches(MakeSubmission("job", 0, 1)).ok());
  EXPECT_TRUE(Reader(job, StreamRequest(0)).Next().has_value());
  engine_->CancelWhatIf(ticket);
  ASSERT_TRUE(answered.Await());
  EXPECT_THAT(answer, Fails(absl::StatusCode::kCancelled, "client"));
}

TEST_F(EngineTest, APlanThatTakesLongerThanTheLimitIsStopped) {
  Event started;
  Start({.planning_threads = 1, .planning_limit = absl::Seconds(30)},
        [&](const v1::Batch&) { started.Notify(); });
  Register(MakeJob("job"));
  Event answered;
  absl::Status answer;
  engine_->PlanBatch(Request("job", FakeBatchPlanner::kUntilStopped), "host",
                     [&](absl::StatusOr<v1::Plan> plan) {
                       answer = std::move(plan).status();
                       answered.Notify();
                     });
  ASSERT_TRUE(started.Await());
  clock_.Advance(absl::Seconds(30));
  engine_->Tick();
  ASSERT_TRUE(answered.Await());
  EXPECT_THAT(answer, Fails(absl::StatusCode::kDeadlineExceeded, "after 30s"));
}

TEST_F(EngineTest, AJobWhoseBatchTakesLongerThanTheLimitFailsAndSaysSo) {
  Event started;
  Start({.planning_threads = 1, .planning_limit = absl::Seconds(30)},
        [&](const v1::Batch&) { started.Notify(); });
  const auto job = Register(MakeJob("job"));
  ASSERT_TRUE(job->SubmitBatches(MakeSubmission("job", 0, 1, FakeBatchPlanner::kUntilStopped)).ok());
  ASSERT_TRUE(started.Await());
  clock_.Advance(absl::Seconds(30));
  engine_->Tick();
  EXPECT_FALSE(Reader(job, StreamRequest(0)).End().ok());
  EXPECT_EQ(job->State(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(job->Status().failure(),
              testing::HasSubstr("iteration 0 cannot be planned: DEADLINE_EXCEEDED: planning was stopped"));
}

TEST_F(EngineTest, ShutdownStopsPlansAndFailsNoJob) {
  Event started;
  Start({.planning_threads = 2}, [&](const v1::Batch&) { started.Notify(); });
  const auto job = Register(MakeJob("job"));
  ASSERT_TRUE(job->SubmitBatches(MakeSubmission("job", 0, 3, FakeBatchPlanner::kUntilStopped)).ok());
  ASSERT_TRUE(started.Await());
  engine_->Shutdown(absl::ZeroDuration());
  EXPECT_EQ(job->State(), v1::JOB_STATE_REGISTERED);
}

TEST_F(EngineTest, PlanBatchIsRefusedWhenTheQueueIsFull) {
  Event started, go_on;
  Start({.planning_threads = 1, .queue_capacity = 1}, [&](const v1::Batch&) {
    started.Notify();
    go_on.Await();
  });
  Register(MakeJob("job"));
  Event answered;
  const auto count = [&](const absl::StatusOr<v1::Plan>&) { answered.Notify(); };
  engine_->PlanBatch(Request("job"), "host", count);
  ASSERT_TRUE(started.Await());
  engine_->PlanBatch(Request("job"), "host", count);
  EXPECT_EQ(engine_->queue_depth(), 1);
  EXPECT_THAT(PlanBatch(Request("job")), Fails(absl::StatusCode::kResourceExhausted, "queue is full"));
  go_on.Notify();
  go_on.Notify();
  EXPECT_TRUE(answered.Await());
  EXPECT_TRUE(answered.Await());
}

TEST_F(EngineTest, ShutdownAnswersWhoStillWaits) {
  Event started, go_on;
  Start({.planning_threads = 1}, [&](const v1::Batch&) {
    started.Notify();
    go_on.Await();
  });
  Register(MakeJob("job"));
  engine_->PlanBatch(Request("job"), "host", [](const absl::StatusOr<v1::Plan>&) {});
  ASSERT_TRUE(started.Await());
  absl::Status second;
  engine_->PlanBatch(Request("job"), "host", [&](absl::StatusOr<v1::Plan> plan) {
    second = std::move(plan).status();
    go_on.Notify();
  });
  engine_->Shutdown(absl::ZeroDuration());
  EXPECT_THAT(second, Fails(absl::StatusCode::kUnavailable, "stops"));
  EXPECT_THAT(RegisterJob(MakeJob("late")), Fails(absl::StatusCode::kUnavailable, "stops"));
}

TEST_F(EngineTest, TellsPlanningTimeAndIterationsToTheObserver) {
  struct Recorder final : EngineObserver {
    void OnPlanned(const absl::Status& status, absl::Duration took) override {
      ok += status.ok() && took == absl::Milliseconds(5) ? 1 : 0;
    }
    void OnIterationCompleted(const std::string& job_id, const v1::IterationSummary& summary) override {
      completed += job_id == "job" && summary.planning_time_ns() == 5'000'000 ? 1 : 0;
    }
    std::atomic<int> ok = 0;
    std::atomic<int> completed = 0;
  } recorder;
  FakeBatchPlannerFactory planners([&](const v1::Batch&) { clock_.Compute(absl::Milliseconds(5)); });
  MemoryEventStore store;
  PlannerEngine engine({}, {&planners, &checker_, &store, &clock_, &recorder});
  ASSERT_TRUE(RegisterJob(engine, MakeJob("job", 1)).ok());
  const auto job = *engine.FindJob("job");
  ASSERT_TRUE(job->SubmitBatches(MakeSubmission("job", 0, 1)).ok());
  ASSERT_TRUE(Reader(job, StreamRequest(0)).Next().has_value());
  ASSERT_TRUE(job->ReportIteration(MakeReport(0, 0)).ok());
  EXPECT_EQ(recorder.ok, 1);
  EXPECT_EQ(recorder.completed, 1);
}

TEST_F(EngineFixture, AReportNamesTasksOfItsJobAlone) {
  v1::JobSpec spec = MakeJob("job", 1);
  spec.add_tasks("flan");
  const auto job = Register(spec);
  ASSERT_TRUE(job->SubmitBatches(MakeSubmission("job", 0, 1)).ok());
  ASSERT_TRUE(Reader(job, StreamRequest(0)).Next().has_value());
  v1::ReportIterationRequest report = MakeReport(0, 0);
  report.add_tasks()->set_task(1);
  EXPECT_THAT(job->ReportIteration(report),
              Fails(absl::StatusCode::kInvalidArgument, "tasks[0].task is 1, but the job has 1 tasks"));
  report.mutable_tasks(0)->set_task(0);
  report.mutable_tasks(0)->set_weight(4);
  report.mutable_tasks(0)->set_loss(10);
  ASSERT_TRUE(job->ReportIteration(report).ok());
  EXPECT_EQ(job->Summaries(0).front().tasks(0).loss(), 2.5);
}

TEST_F(EngineFixture, AReportHasAValidationWhereItsPlanHasOne) {
  const auto job = Register(MakeJob("job", 1));
  v1::SubmitBatchesRequest batches = MakeSubmission("job", 0, 2);
  *batches.mutable_batches(0)->mutable_validation() = MakeBatch(0);
  ASSERT_TRUE(job->SubmitBatches(batches).ok());
  Reader reader(job, StreamRequest(0));
  ASSERT_TRUE(reader.Next().has_value() && reader.Next().has_value());
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  v1::ReportIterationRequest report = MakeReport(0, 0);
  EXPECT_THAT(job->ReportIteration(report),
              Fails(kInvalid, "validation is missing, but the plan of iteration 0 has one"));
  report.mutable_validation()->add_instructions()->set_id(1);
  EXPECT_THAT(job->ReportIteration(report),
              Fails(kInvalid, "validation.instructions[0].id is 1, but the program of rank 0 has 1"));
  report.mutable_validation()->mutable_instructions(0)->set_id(0);
  report.mutable_validation()->set_loss(2.5);
  ASSERT_TRUE(job->ReportIteration(report).ok());
  EXPECT_EQ(job->Summaries(0).front().validation().loss(), 2.5);
  report.set_iteration(1);
  EXPECT_THAT(job->ReportIteration(report),
              Fails(kInvalid, "validation is set, but the plan of iteration 1 has none"));
}

}  // namespace
}  // namespace penstock
