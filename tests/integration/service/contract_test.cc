// Every error of planner_service.proto, over gRPC and with the real planner core, by its exact code.
#include <google/protobuf/unknown_field_set.h>

#include <limits>

#include "common/grpc/channel.h"
#include "penstock/client/retry_iteration.h"
#include "planner/service/main/core_backend.h"
#include "tests/integration/service/fake_worker.h"
#include "tests/integration/service/planner_fixture.h"
#include "tests/support/raw_call.h"
#include "tests/unit/core/job_builder.h"

namespace penstock {
namespace {

using absl::StatusCode;
using google::protobuf::UnknownFieldSet;

// SubmitBatchesRequest of one sample, whose field holds the varint of a negative number: ten bytes, as a
// client that takes lengths for int64 writes them.
std::string SubmissionOf(int sample_field, int64_t value) {
  UnknownFieldSet sample, batch, request;
  sample.AddVarint(sample_field, static_cast<uint64_t>(value));
  sample.SerializeToString(batch.AddLengthDelimited(v1::Batch::kSamplesFieldNumber));
  batch.SerializeToString(request.AddLengthDelimited(v1::SubmitBatchesRequest::kBatchesFieldNumber));
  request.AddLengthDelimited(v1::SubmitBatchesRequest::kJobIdFieldNumber, "job");
  std::string bytes;
  request.SerializeToString(&bytes);
  return bytes;
}

class ContractTest : public PlannerFixture {
 protected:
  void SetUp() override {
    planners_ = &core_planners_;
    checker_ = &core_checker_;
    Serve({.engine = {.quotas = {.jobs = 2}}});
    Register(Spec());
  }

  // Two stages; a sample of more than 500 tokens does not fit in memory.
  static v1::JobSpec Spec() {
    v1::JobSpec job = core::GptJob(2, 1, v1::POLICY_DYNAMIC);
    job.set_job_id("job");
    job.mutable_planning()->set_recompute(v1::RECOMPUTE_NONE);
    job.mutable_planning()->set_memory_limit_bytes(300'000);
    return job;
  }

  absl::Status RegisterJob(const v1::JobSpec& job) {
    v1::RegisterJobRequest request;
    *request.mutable_job() = job;
    return client_->RegisterJob(request).status();
  }

  absl::StatusOr<v1::SubmitBatchesResponse> Submit(uint64_t from, uint64_t to, uint32_t tokens = 10) {
    return client_->SubmitBatches(MakeSubmission("job", from, to, tokens));
  }

  absl::Status SubmitSample(uint32_t tokens) {
    auto request = MakeSubmission("job", 0, 2);
    request.mutable_batches(1)->mutable_samples(3)->set_target_tokens(tokens);
    return client_->SubmitBatches(request).status();
  }

  absl::Status Stream(const v1::StreamProgramsRequest& request) {
    return client_->StreamPrograms(request, absl::Seconds(20))->Next().status();
  }

  absl::Status CallWithBytes(const std::string& method, const std::string& request) {
    return CallRaw(CreateClientChannel(address()), method, request);
  }

  // Fails the job's epoch through a worker that reports an error.
  void FailEpoch() {
    ASSERT_TRUE(client_->RegisterWorker(MakeRegistration(1, 0)).ok());
    auto failure = MakeHeartbeat(0, 1, 1);
    failure.set_failure("out of memory");
    ASSERT_TRUE(client_->Heartbeat(failure).ok());
  }

  absl::StatusOr<v1::DrainJobResponse> Drain() {
    v1::DrainJobRequest request;
    request.set_job_id("job");
    return client_->DrainJob(request);
  }

  CorePlannerFactory core_planners_;
  CorePlanChecker core_checker_;
};

TEST_F(ContractTest, RegisterJob) {
  EXPECT_TRUE(RegisterJob(Spec()).ok());
  v1::JobSpec other = Spec();
  other.set_look_ahead_window(3);
  EXPECT_THAT(RegisterJob(other), Fails(StatusCode::kAlreadyExists, "job.job_id"));
  other.set_job_id("bad/id");
  EXPECT_THAT(RegisterJob(other), Fails(StatusCode::kInvalidArgument, "job.job_id"));
  other.set_job_id("other");
  other.mutable_mesh()->set_pipeline(0);
  EXPECT_THAT(RegisterJob(other), Fails(StatusCode::kInvalidArgument, "job.mesh.pipeline"));
  other.mutable_mesh()->set_pipeline(2);
  other.mutable_planning()->clear_policy();
  EXPECT_THAT(RegisterJob(other), Fails(StatusCode::kInvalidArgument, "job.planning.policy"));
  other.mutable_planning()->set_policy(v1::POLICY_PACKED);
  EXPECT_TRUE(RegisterJob(other).ok());
  other.set_job_id("third");
  EXPECT_THAT(RegisterJob(other), Fails(StatusCode::kResourceExhausted, "2 jobs"));
}

TEST_F(ContractTest, SubmitBatchesRefusesMalformedBatches) {
  EXPECT_THAT(client_->SubmitBatches(MakeSubmission("job", 0, 0)),
              Fails(StatusCode::kInvalidArgument, "batches is empty"));
  auto request = MakeSubmission("job", 0, 2);
  request.mutable_batches(1)->clear_samples();
  EXPECT_THAT(client_->SubmitBatches(request),
              Fails(StatusCode::kInvalidArgument, "batches[1].samples is empty"));
  EXPECT_THAT(SubmitSample(0), Fails(StatusCode::kInvalidArgument, "batches[1].samples[3] has no tokens"));
  EXPECT_THAT(SubmitSample(static_cast<uint32_t>(-7)),
              Fails(StatusCode::kInvalidArgument, "batches[1].samples[3].target_tokens"));
  EXPECT_THAT(SubmitSample(5000), Fails(StatusCode::kInvalidArgument, "batches[1].samples[3]"));
  EXPECT_TRUE(SubmitSample(20).ok());
}

TEST_F(ContractTest, SubmitBatchesRefusesNegativeLengthsOnTheWire) {
  for (const int64_t length : {int64_t{-1}, int64_t{-7}, int64_t{std::numeric_limits<int32_t>::min()}}) {
    EXPECT_THAT(CallWithBytes("SubmitBatches", SubmissionOf(v1::Sample::kTargetTokensFieldNumber, length)),
                Fails(StatusCode::kInvalidArgument, "batches[0].samples[0].target_tokens"));
    EXPECT_THAT(CallWithBytes("SubmitBatches", SubmissionOf(v1::Sample::kInputTokensFieldNumber, length)),
                Fails(StatusCode::kInvalidArgument, "batches[0].samples[0].input_tokens"));
  }
  // The same bytes with a length are taken.
  EXPECT_TRUE(CallWithBytes("SubmitBatches", SubmissionOf(v1::Sample::kTargetTokensFieldNumber, 7)).ok());
}

TEST_F(ContractTest, SubmitBatchesRefusesASampleThatDoesNotFitInMemory) {
  EXPECT_THAT(SubmitSample(2000),
              Fails(StatusCode::kInvalidArgument, "batches[1].samples[3]: 2000 tokens do not fit on stage"));
}

TEST_F(ContractTest, SubmitBatchesWhereTheJobOrTheIterationIsWrong) {
  EXPECT_THAT(client_->SubmitBatches(MakeSubmission("nobody", 0, 1)), Fails(StatusCode::kNotFound, "nobody"));
  ASSERT_TRUE(Submit(0, 3).ok());
  EXPECT_TRUE(Submit(0, 3).ok());
  EXPECT_THAT(Submit(2, 3, 11), Fails(StatusCode::kAlreadyExists, "iteration 2"));
  EXPECT_THAT(Submit(5, 6), Fails(StatusCode::kFailedPrecondition, "iteration 3 is expected next"));
}

TEST_F(ContractTest, SubmitBatchesBeyondTheWindowNamesTheIterationToRetryFrom) {
  ASSERT_TRUE(Submit(0, 16).ok());
  for (const uint64_t from : {16, 160}) {
    const absl::Status status = Submit(from, from + 1).status();
    EXPECT_THAT(status, Fails(StatusCode::kResourceExhausted, "retry from iteration 16"));
    EXPECT_THAT(RetryIteration(status), testing::Optional(16));
  }
  EXPECT_THAT(Submit(0, 160), Fails(StatusCode::kResourceExhausted, "iteration 159 is beyond"));
}

TEST_F(ContractTest, AFailedJobTakesNoBatchesAndIsNotDrained) {
  FailEpoch();
  EXPECT_THAT(Submit(0, 1), Fails(StatusCode::kFailedPrecondition, "out of memory"));
  EXPECT_THAT(Drain(), Fails(StatusCode::kFailedPrecondition, "out of memory"));
}

TEST_F(ContractTest, ADrainingJobTakesNoBatches) {
  ASSERT_TRUE(Submit(0, 1).ok());
  ASSERT_TRUE(client_->RegisterWorker(MakeRegistration(1)).ok());
  EXPECT_EQ(Drain()->state(), v1::JOB_STATE_DRAINING);
  EXPECT_EQ(Drain()->state(), v1::JOB_STATE_DRAINING);
  EXPECT_THAT(Submit(1, 2), Fails(StatusCode::kFailedPrecondition, "drains"));
}

TEST_F(ContractTest, ABatchThatNoPlanFitsInMemoryEndsItsCallOrItsJob) {
  v1::JobSpec job = Spec();
  job.set_job_id("wide");
  job.mutable_planning()->set_policy(v1::POLICY_PADDING);
  job.mutable_planning()->set_micro_batch_size(4);
  ASSERT_TRUE(RegisterJob(job).ok());
  v1::PlanBatchRequest request;
  request.set_job_id("wide");
  *request.mutable_batch() = MakeBatch(0, 400);
  EXPECT_THAT(client_->PlanBatch(request), Fails(StatusCode::kResourceExhausted, "memory"));
  // Accepted, for each sample fits alone; the plan that is not found fails the job.
  ASSERT_TRUE(client_->SubmitBatches(MakeSubmission("wide", 0, 1, 400)).ok());
  EXPECT_THAT(Read("wide", 0)->Next(),
              Fails(StatusCode::kFailedPrecondition, "iteration 0 cannot be planned"));
  v1::RegisterWorkerRequest worker = MakeRegistration(1);
  worker.set_job_id("wide");
  EXPECT_THAT(client_->RegisterWorker(worker),
              Fails(StatusCode::kFailedPrecondition, "iteration 0 cannot be planned"));
}

TEST_F(ContractTest, RegisterWorkerBeforeWhatIsHeld) {
  Serve({});
  v1::JobSpec job = Spec();
  job.mutable_training()->set_checkpoint_interval(20);  // 64 iterations are held at least
  Register(job);
  const auto stream = Read("job", 0);
  for (uint64_t i = 0; i < 70; ++i) {
    ASSERT_TRUE(Submit(i, i + 1).ok());
    ASSERT_TRUE(stream->Next().ok());
    for (const uint32_t rank : {0, 1}) ASSERT_TRUE(client_->ReportIteration(MakeReport(rank, i)).ok());
  }
  EXPECT_THAT(client_->RegisterWorker(MakeRegistration(1, 0, 5)),
              Fails(StatusCode::kFailedPrecondition, "iteration 5 is no longer held, the first is 6"));
}

TEST_F(ContractTest, PlanBatch) {
  v1::PlanBatchRequest request;
  EXPECT_THAT(client_->PlanBatch(request), Fails(StatusCode::kInvalidArgument, "neither job_id nor job"));
  request.set_job_id("nobody");
  EXPECT_THAT(client_->PlanBatch(request), Fails(StatusCode::kInvalidArgument, "batch.samples is empty"));
  *request.mutable_batch() = MakeBatch(9);
  EXPECT_THAT(client_->PlanBatch(request), Fails(StatusCode::kNotFound, "nobody"));
  request.set_job_id("job");
  const auto answer = client_->PlanBatch(request);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->plan().programs_size(), 2);
  EXPECT_GT(answer->plan().planning_time_ns(), 0);
  request.mutable_batch()->mutable_samples(2)->set_target_tokens(2000);
  EXPECT_THAT(client_->PlanBatch(request), Fails(StatusCode::kInvalidArgument, "batch.samples[2]"));
}

TEST_F(ContractTest, ReviseCosts) {
  v1::ReviseCostsRequest request;
  EXPECT_THAT(client_->ReviseCosts(request), Fails(StatusCode::kInvalidArgument, "job is missing"));
  *request.mutable_job() = core::GptJob(2, 1, v1::POLICY_DYNAMIC);
  request.mutable_job()->mutable_profile()->set_version(3);
  EXPECT_THAT(client_->ReviseCosts(request), Fails(StatusCode::kInvalidArgument, "passes is empty"));
  v1::MeasuredPass* const pass = request.add_passes();
  EXPECT_THAT(client_->ReviseCosts(request),
              Fails(StatusCode::kInvalidArgument, "passes[0].duration_ns is not above 0"));
  pass->set_duration_ns(7);
  EXPECT_THAT(client_->ReviseCosts(request),
              Fails(StatusCode::kInvalidArgument, "passes[0].samples is empty"));
  pass->add_samples()->set_target_tokens(9);
  EXPECT_THAT(client_->ReviseCosts(request), Fails(StatusCode::kInvalidArgument, "passes[0].layout"));
  pass->set_layout(v1::LAYOUT_PACKED);
  EXPECT_THAT(client_->ReviseCosts(request), Fails(StatusCode::kInvalidArgument, "passes[0].op"));
  pass->set_op(v1::OP_FORWARD);
  pass->set_stage(2);
  EXPECT_THAT(client_->ReviseCosts(request), Fails(StatusCode::kInvalidArgument, "passes[0].stage"));
  pass->set_stage(1);
  const auto answer = client_->ReviseCosts(request);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->profile().version(), 4u);
  EXPECT_THAT(client_->ListJobs({})->jobs(), ::testing::SizeIs(1)) << "nothing is kept";
}

TEST_F(ContractTest, StreamPrograms) {
  FakeWorker first(address(), "job", 1), second(address(), "job", 2);
  ASSERT_TRUE(first.Register().ok());
  v1::StreamProgramsRequest request = first.StreamRequest(0);
  request.set_job_id("nobody");
  EXPECT_THAT(Stream(request), Fails(StatusCode::kNotFound, "nobody"));
  request = first.StreamRequest(0);
  request.set_rank(2);
  EXPECT_THAT(Stream(request), Fails(StatusCode::kInvalidArgument, "rank is 2"));
  request = first.StreamRequest(0);
  request.set_incarnation(99);
  EXPECT_THAT(Stream(request), Fails(StatusCode::kAborted, "incarnation 99 is stale"));
  request = first.StreamRequest(0);
  request.set_epoch(7);
  EXPECT_THAT(Stream(request), Fails(StatusCode::kAborted, "epoch 7 is stale"));
  ASSERT_TRUE(first.Heartbeat("out of memory").ok());
  EXPECT_THAT(Stream(first.StreamRequest(0)), Fails(StatusCode::kFailedPrecondition, "out of memory"));
  ASSERT_TRUE(second.Register().ok());
  EXPECT_THAT(Stream(first.StreamRequest(0)), Fails(StatusCode::kAborted, "epoch 1 is stale"));
}

TEST_F(ContractTest, AStreamMayNotBeginBeforeWhatIsHeld) {
  v1::JobSpec late = Spec();
  late.set_job_id("late");
  late.set_first_iteration(100);
  ASSERT_TRUE(RegisterJob(late).ok());
  EXPECT_THAT(Read("late", 0, 99)->Next(), Fails(StatusCode::kOutOfRange, "iteration 99 is no longer held"));
}

TEST_F(ContractTest, ReportIteration) {
  ASSERT_TRUE(Submit(0, 4).ok());
  FakeWorker first(address(), "job", 1), second(address(), "job", 2);
  ASSERT_TRUE(first.Register().ok());
  ASSERT_TRUE(first.Work(0, 2).ok());
  auto report = MakeReport(0, 4, 1, 1);
  EXPECT_THAT(client_->ReportIteration(report),
              Fails(StatusCode::kFailedPrecondition, "iteration 4 was not sent"));
  report = MakeReport(0, 1, 1, 1);
  EXPECT_TRUE(client_->ReportIteration(report).ok());
  report.set_duration_ns(-1);
  EXPECT_THAT(client_->ReportIteration(report), Fails(StatusCode::kInvalidArgument, "duration_ns"));
  EXPECT_THAT(client_->ReportIteration(MakeReport(0, 1, 9, 1)), Fails(StatusCode::kAborted, "incarnation 9"));
  EXPECT_THAT(client_->ReportIteration(MakeReport(0, 1, 1, 2)), Fails(StatusCode::kAborted, "epoch 2"));
  EXPECT_THAT(client_->ReportIteration(MakeReport(1, 0)), Fails(StatusCode::kAborted, "stale"));
  EXPECT_THAT(client_->ReportIteration(MakeReport(6, 1, 1, 1)),
              Fails(StatusCode::kInvalidArgument, "rank is 6"));
  report = MakeReport(0, 1, 1, 1);
  report.set_job_id("nobody");
  EXPECT_THAT(client_->ReportIteration(report), Fails(StatusCode::kNotFound, "nobody"));
}

TEST_F(ContractTest, RegisterWorker) {
  v1::RegisterWorkerRequest request = MakeRegistration(1);
  request.set_job_id("nobody");
  EXPECT_THAT(client_->RegisterWorker(request), Fails(StatusCode::kNotFound, "nobody"));
  EXPECT_THAT(client_->RegisterWorker(MakeRegistration(0)),
              Fails(StatusCode::kInvalidArgument, "incarnation"));
  EXPECT_THAT(client_->RegisterWorker(MakeRegistration(1, 2)),
              Fails(StatusCode::kInvalidArgument, "rank is 2"));
  EXPECT_THAT(client_->RegisterWorker(MakeRegistration(1, 0, 5)),
              Fails(StatusCode::kInvalidArgument, "first_iteration is 5"));
  ASSERT_TRUE(client_->RegisterWorker(MakeRegistration(1, 1)).ok());
  EXPECT_THAT(client_->RegisterWorker(MakeRegistration(2, 1)), Fails(StatusCode::kAlreadyExists, "rank 1"));
  ASSERT_TRUE(client_->RegisterWorker(MakeRegistration(2)).ok());
  EXPECT_THAT(client_->RegisterWorker(MakeRegistration(3)),
              Fails(StatusCode::kResourceExhausted, "all 2 ranks"));
  auto failure = MakeHeartbeat(0, 2, 1);
  failure.set_failure("out of memory");
  ASSERT_TRUE(client_->Heartbeat(failure).ok());
  EXPECT_THAT(client_->RegisterWorker(MakeRegistration(1)), Fails(StatusCode::kAborted, "out of memory"));
}

TEST_F(ContractTest, AFinishedJobTakesNoWorkersAndNoBatches) {
  ASSERT_TRUE(Submit(0, 2).ok());
  v1::DrainJobRequest drain;
  drain.set_job_id("job");
  EXPECT_EQ(client_->DrainJob(drain)->state(), v1::JOB_STATE_FINISHED);
  EXPECT_THAT(client_->RegisterWorker(MakeRegistration(1)),
              Fails(StatusCode::kFailedPrecondition, "finished"));
  EXPECT_THAT(Submit(2, 3), Fails(StatusCode::kFailedPrecondition, "finished"));
}

TEST_F(ContractTest, Heartbeat) {
  ASSERT_TRUE(client_->RegisterWorker(MakeRegistration(1)).ok());
  EXPECT_EQ(client_->Heartbeat(MakeHeartbeat(0, 1, 1))->state(), v1::EPOCH_STATE_FORMING);
  EXPECT_THAT(client_->Heartbeat(MakeHeartbeat(0, 9, 1)),
              Fails(StatusCode::kAborted, "incarnation 9 is stale"));
  EXPECT_THAT(client_->Heartbeat(MakeHeartbeat(0, 1, 9)), Fails(StatusCode::kAborted, "epoch 9 is stale"));
  EXPECT_THAT(client_->Heartbeat(MakeHeartbeat(1, 1, 1)), Fails(StatusCode::kAborted, "rank 1 is free"));
  auto unknown = MakeHeartbeat(0, 1, 1);
  unknown.set_job_id("nobody");
  EXPECT_THAT(client_->Heartbeat(unknown), Fails(StatusCode::kNotFound, "nobody"));
}

TEST_F(ContractTest, LookingAtJobs) {
  v1::GetJobRequest job;
  job.set_job_id("nobody");
  EXPECT_THAT(client_->GetJob(job), Fails(StatusCode::kNotFound, "nobody"));
  v1::GetIterationRequest iteration;
  iteration.set_job_id("nobody");
  EXPECT_THAT(client_->GetIteration(iteration), Fails(StatusCode::kNotFound, "nobody"));
  iteration.set_job_id("job");
  EXPECT_THAT(client_->GetIteration(iteration), Fails(StatusCode::kOutOfRange, "iteration: 0 is not held"));
  v1::DrainJobRequest drain;
  drain.set_job_id("nobody");
  EXPECT_THAT(client_->DrainJob(drain), Fails(StatusCode::kNotFound, "nobody"));
  const auto jobs = client_->ListJobs();
  ASSERT_EQ(jobs->jobs_size(), 1);
  EXPECT_EQ(jobs->jobs(0).state(), v1::JOB_STATE_REGISTERED);
}

TEST_F(ContractTest, StreamedProgramsAreThoseOfThePlan) {
  ASSERT_TRUE(Submit(0, 3).ok());
  const auto stream = Read("job", 1);
  for (uint64_t i = 0; i < 3; ++i) {
    const auto program = stream->Next();
    ASSERT_TRUE(program.ok() && program->has_value()) << program.status();
    v1::GetIterationRequest request;
    request.set_job_id("job");
    request.set_iteration(i);
    const auto iteration = client_->GetIteration(request);
    ASSERT_TRUE(iteration.ok()) << iteration.status();
    EXPECT_EQ((*program)->content_hash(), iteration->plan().content_hash());
    EXPECT_EQ((*program)->program().SerializeAsString(), iteration->plan().programs(1).SerializeAsString());
    EXPECT_EQ((*program)->samples_size(), 4);
  }
}

}  // namespace
}  // namespace penstock
