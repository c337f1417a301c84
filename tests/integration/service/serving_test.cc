// Streams, deadlines, cancellation, health, reflection and the end of a planner, over gRPC.
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>

#include <thread>

#include "absl/time/clock.h"
#include "common/grpc/channel.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "penstock/client/retry_iteration.h"
#include "tests/integration/service/planner_fixture.h"
#include "tests/support/raw_call.h"
#include "tests/support/shortest_time.h"
#include "tests/unit/service/event.h"

namespace penstock {
namespace {

using absl::StatusCode;
using grpc::health::v1::Health;
using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

// Looks again and again, for at most 10 s: the server learns of a cancellation when it learns of it.
template <typename Condition>
bool Eventually(Condition condition) {
  const absl::Time deadline = absl::Now() + absl::Seconds(10);
  while (!condition()) {
    if (absl::Now() > deadline) return false;
    absl::SleepFor(absl::Milliseconds(2));
  }
  return true;
}

class ServingTest : public PlannerFixture {
 protected:
  void SetUp() override {
    PlannerFixture::SetUp();
    Register(MakeJob("job", 1));
  }

  // Iterations from .. to - 1 of a job without workers: submitted, planned and acknowledged.
  void Complete(uint64_t from, uint64_t to, uint32_t samples = 4) {
    const auto stream = Read("job", 0, from);
    for (uint64_t i = from; i < to; ++i) {
      auto request = MakeSubmission("job", i, i + 1);
      while (request.batches(0).samples_size() < static_cast<int>(samples)) {
        *request.mutable_batches(0)->add_samples() = request.batches(0).samples(0);
      }
      ASSERT_TRUE(client_->SubmitBatches(request).ok());
      ASSERT_TRUE(stream->Next().ok());
      ASSERT_TRUE(client_->ReportIteration(MakeReport(0, i)).ok());
    }
  }

  absl::StatusOr<v1::PlanBatchResponse> PlanBatch(absl::Duration deadline) {
    v1::PlanBatchRequest request;
    request.set_job_id("job");
    *request.mutable_batch() = MakeBatch(0);
    return client_->PlanBatch(request, deadline);
  }

  // The status of a call of gRPC reflection.
  grpc::StatusCode CallReflection() {
    grpc::GenericStub stub(CreateClientChannel(address()));
    grpc::CompletionQueue queue;
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(10)));
    const auto call =
        stub.PrepareCall(&context, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", &queue);
    grpc::Status status;
    int tags = 0;
    void* tag = nullptr;
    bool ok = false;
    call->StartCall(&tags);
    queue.Next(&tag, &ok);
    call->WritesDone(&tags);
    queue.Next(&tag, &ok);
    call->Finish(&status, &tags);
    queue.Next(&tag, &ok);
    return status.error_code();
  }
};

TEST_F(ServingTest, AStreamResumesFromAnyIteration) {
  Complete(0, 12);
  for (const uint64_t from : {0, 5, 11}) {
    const auto stream = Read("job", 0, from);
    for (uint64_t i = from; i < 12; ++i) EXPECT_EQ((*stream->Next())->iteration(), i);
  }
}

TEST_F(ServingTest, ASlowReaderLosesItsPlaceInsteadOfGrowingThePlanner) {
  Serve({});
  v1::JobSpec job = MakeJob("job", 1);
  job.mutable_training()->set_checkpoint_interval(20);  // 64 iterations are held at least
  Register(job);
  // A connection of its own that buffers 64 KiB and no more.
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  const auto stub = v1::PlannerService::NewStub(
      grpc::CreateCustomChannel(address(), grpc::InsecureChannelCredentials(), arguments));
  // It does not read columns: columns of so many samples that are alike would all lie in the buffer.
  v1::StreamProgramsRequest request;
  request.set_job_id("job");
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(20)));
  const auto slow = stub->StreamPrograms(&context, request);
  Complete(0, 100, /*samples=*/4096);
  uint64_t received = 0;
  for (v1::StreamProgramsResponse program; slow->Read(&program);) ++received;
  const grpc::Status status = slow->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::OUT_OF_RANGE);
  EXPECT_THAT(status.error_message(), testing::HasSubstr("is no longer held, the first is 36"));
  EXPECT_LT(received, 36);
}

TEST_F(ServingTest, ACancelledStreamEndsOnBothSides) {
  const auto stream = Read("job", 0);
  Complete(0, 1);
  ASSERT_TRUE(stream->Next().ok());
  std::thread canceller([&] { stream->Cancel(); });
  EXPECT_THAT(stream->Next(), Fails(StatusCode::kCancelled, ""));
  EXPECT_THAT(stream->Next(), Fails(StatusCode::kCancelled, ""));
  canceller.join();
  // Complete() read a stream of its own and cancelled it at its end.
  EXPECT_TRUE(Eventually([&] {
    return server_->metrics().Text().find("{code=\"CANCELLED\",method=\"StreamPrograms\"} 2") !=
           std::string::npos;
  }));
}

TEST_F(ServingTest, AStreamIsEndedWhileAClientThatNeverReadsHoldsIt) {
  const auto unread = Read("job", 0);
  Complete(0, 30, /*samples=*/4096);
  const absl::Time start = absl::Now();
  server_->Stop();
  EXPECT_LT(absl::Now() - start, absl::Seconds(5));
}

TEST_F(ServingTest, PlanBatchEndsWithTheClientsDeadline) {
  Event go_on, started;
  gate_ = [&](const v1::Batch&) {
    started.Notify();
    go_on.Await();
  };
  // Long enough to be begun on any machine.
  EXPECT_THAT(PlanBatch(absl::Seconds(2)), Fails(StatusCode::kDeadlineExceeded, ""));
  ASSERT_TRUE(started.Await());
  // This one is still in the queue when its client gives up.
  EXPECT_THAT(PlanBatch(absl::Milliseconds(300)), Fails(StatusCode::kDeadlineExceeded, ""));
  for (int i = 0; i < 3; ++i) go_on.Notify();
  EXPECT_TRUE(PlanBatch(absl::Seconds(10)).ok());
}

TEST_F(ServingTest, AFullQueueRefusesPlansAndKeepsBatchesForLater) {
  Event started, go_on;
  gate_ = [&](const v1::Batch&) {
    started.Notify();
    go_on.Await();
  };
  Serve({.engine = {.queue_capacity = 1}});
  Register(MakeJob("job", 1));
  // All three threads plan, and one more batch waits.
  ASSERT_TRUE(client_->SubmitBatches(MakeSubmission("job", 0, 2)).ok());
  ASSERT_TRUE(started.Await());
  ASSERT_TRUE(started.Await());
  ASSERT_TRUE(client_->SubmitBatches(MakeSubmission("job", 2, 5)).ok());
  ASSERT_TRUE(started.Await());
  ASSERT_TRUE(Eventually([&] {
    return server_->metrics().Text().find("penstock_planning_queue_depth 1") != std::string::npos;
  }));
  EXPECT_THAT(PlanBatch(absl::Seconds(10)), Fails(StatusCode::kResourceExhausted, "queue is full"));
  for (int i = 0; i < 5; ++i) go_on.Notify();
  const auto stream = Read("job", 0);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(stream->Next().ok());
}

TEST_F(ServingTest, OtherCallsAreAnsweredWhileThePoolIsBusy) {
  Event go_on;
  gate_ = [&](const v1::Batch&) { go_on.Await(); };
  ASSERT_TRUE(client_->SubmitBatches(MakeSubmission("job", 0, 1)).ok());
  EXPECT_EQ(client_->ListJobs({}, absl::Seconds(2))->jobs(0).next_iteration(), 1);
  go_on.Notify();
  EXPECT_TRUE(Read("job", 0)->Next().ok());
}

TEST_F(ServingTest, StopEndsStreamsAsUnavailable) {
  const auto stream = Read("job", 0);
  Complete(0, 1);
  ASSERT_TRUE(stream->Next().ok());
  std::thread stopper([&] { server_->Stop(); });
  EXPECT_THAT(stream->Next(), Fails(StatusCode::kUnavailable, "the planner stops"));
  stopper.join();
  EXPECT_THAT(CallRaw(CreateClientChannel(address()), "ListJobs", ""), Fails(StatusCode::kUnavailable, ""));
}

TEST_F(ServingTest, AnUnreachablePlannerIsUnavailableWithinTheDeadline) {
  server_->Stop();
  const absl::Time start = absl::Now();
  EXPECT_THAT(client_->SubmitBatches(MakeSubmission("job", 0, 1), absl::Seconds(2)),
              Fails(StatusCode::kUnavailable, ""));
  EXPECT_LT(absl::Now() - start, absl::Seconds(10));
}

TEST_F(ServingTest, HealthIsServedUntilTheEnd) {
  Serve({.health_listen = "127.0.0.1:0"});
  for (const int port : {server_->ports().planner, server_->ports().health}) {
    const auto stub = Health::NewStub(CreateClientChannel(absl::StrCat("127.0.0.1:", port)));
    HealthCheckRequest request;
    HealthCheckResponse response;
    for (const char* service : {"", "penstock.v1.PlannerService"}) {
      grpc::ClientContext context;
      request.set_service(service);
      ASSERT_TRUE(stub->Check(&context, request, &response).ok());
      EXPECT_EQ(response.status(), HealthCheckResponse::SERVING);
    }
    grpc::ClientContext context;
    request.set_service("nothing");
    EXPECT_EQ(stub->Check(&context, request, &response).error_code(), grpc::StatusCode::NOT_FOUND);
  }
}

TEST_F(ServingTest, AWatchOfTheHealthSeesTheEndAndDoesNotHoldIt) {
  const absl::Duration taken = ShortestTime([this] {
    Serve({});
    const auto stub = Health::NewStub(CreateClientChannel(address()));
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(20)));
    const auto watch = stub->Watch(&context, HealthCheckRequest());
    HealthCheckResponse response;
    EXPECT_TRUE(watch->Read(&response));
    EXPECT_EQ(response.status(), HealthCheckResponse::SERVING);
    const absl::Time start = absl::Now();
    std::thread stopper([this] { server_->Stop(); });
    EXPECT_TRUE(watch->Read(&response));
    EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);
    EXPECT_FALSE(watch->Read(&response));
    EXPECT_EQ(watch->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
    stopper.join();
    return absl::Now() - start;
  });
  EXPECT_LT(taken, absl::Seconds(1)) << "calls are given a second to end by themselves";
}

TEST_F(ServingTest, ReflectionIsServedOnlyWhenAskedFor) {
  EXPECT_EQ(CallReflection(), grpc::StatusCode::UNIMPLEMENTED);
  Serve({.reflection = true});
  EXPECT_EQ(CallReflection(), grpc::StatusCode::OK);
}

TEST_F(ServingTest, APortBeyondTheRangeIsRefusedAndNotWrappedAround) {
  const auto server = PlannerServer::Start({.listen = "127.0.0.1:99999"}, planners_, checker_);
  EXPECT_THAT(server, Fails(StatusCode::kInvalidArgument, "a port is 0 to 65535"));
}

TEST_F(ServingTest, AnAddressThatIsTakenIsRefusedWithTheFlag) {
  const auto second = PlannerServer::Start({.listen = address()}, planners_, checker_);
  EXPECT_THAT(second, Fails(StatusCode::kUnavailable, "--listen: cannot listen on"));
  const auto third = PlannerServer::Start({.metrics_listen = address()}, planners_, checker_);
  EXPECT_THAT(third, Fails(StatusCode::kUnavailable, "--metrics-listen: cannot listen on"));
}

}  // namespace
}  // namespace penstock
