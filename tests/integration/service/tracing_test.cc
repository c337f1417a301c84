// The spans of a batch as a collector gets them: a planner with its gRPC service, and ranks that read and
// report.
#include <grpcpp/client_context.h>

#include <algorithm>
#include <thread>

#include "absl/strings/escaping.h"
#include "common/grpc/channel.h"
#include "common/net/listening.h"
#include "common/tracing/batch_trace.h"
#include "penstock/v1/planner_service.grpc.pb.h"
#include "tests/integration/service/fake_worker.h"
#include "tests/integration/service/planner_fixture.h"
#include "tests/support/trace_collector.h"

namespace penstock {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

class TracingTest : public PlannerFixture {
 protected:
  void SetUp() override { Serve({.otlp_endpoint = collector_.address()}); }

  // All ranks of a job of two read and report so many iterations.
  void Train(const std::string& job_id, uint64_t iterations) {
    std::vector<std::thread> threads;
    for (uint64_t rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        FakeWorker worker(address(), job_id, 100 + rank);
        EXPECT_TRUE(worker.Register(static_cast<int32_t>(rank)).ok());
        worker.StartHeartbeats();
        EXPECT_TRUE(worker.Work(0, iterations).ok());
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  // Of the batch, once its root is there: the planner sends it last.
  std::vector<CollectedSpan> SpansOf(const std::string& job_id, uint64_t iteration) {
    const BatchTrace trace = TraceOfBatch(job_id, iteration);
    EXPECT_TRUE(collector_.Await([&](const std::vector<CollectedSpan>& spans) {
      return std::ranges::any_of(
          spans, [&](const CollectedSpan& one) { return one.span.span_id() == trace.root_id; });
    }));
    return collector_.SpansOfTrace(trace.trace_id);
  }

  const TraceCollector collector_;
};

TEST_F(TracingTest, ABatchIsOneTraceWithAllThatThePlannerDoesForIt) {
  Register(MakeJob("job", 2));
  ASSERT_TRUE(client_->SubmitBatches(MakeSubmission("job", 0, 2)).ok());
  Train("job", 2);
  for (const uint64_t iteration : {0, 1}) {
    const std::vector<CollectedSpan> spans = SpansOf("job", iteration);
    EXPECT_THAT(NamesOf(spans),
                ElementsAre("batch", "deliver", "deliver", "plan", "queue", "submit", "verify"));
    for (const CollectedSpan& one : spans) {
      const std::string& name = one.span.name();
      EXPECT_EQ(one.service, "penstock-planner");
      EXPECT_EQ(one.span.parent_span_id(), name == "batch" ? "" : TraceOfBatch("job", iteration).root_id)
          << name;
      EXPECT_EQ(one.Attribute("penstock.job"), "job") << name;
      EXPECT_LE(one.span.start_time_unix_nano(), one.span.end_time_unix_nano()) << name;
      EXPECT_FALSE(one.span.has_status()) << name;
    }
  }
  EXPECT_THAT(server_->metrics().Text(),
              HasSubstr("penstock_spans_dropped_total{reason=\"queue_full\"} 0\n"));
}

TEST_F(TracingTest, ASubmissionIsLinkedToTheSpanOfItsCaller) {
  Register(MakeJob("job", 2));
  const auto stub = v1::PlannerService::NewStub(CreateClientChannel(address()));
  grpc::ClientContext context;
  context.AddMetadata("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
  context.AddMetadata("tracestate", "vendor=x");
  v1::SubmitBatchesResponse response;
  ASSERT_TRUE(stub->SubmitBatches(&context, MakeSubmission("job", 0, 1), &response).ok());
  Train("job", 1);
  for (const CollectedSpan& one : SpansOf("job", 0)) {
    if (one.span.name() != "submit") {
      EXPECT_THAT(one.span.links(), IsEmpty()) << one.span.name();
      continue;
    }
    ASSERT_THAT(one.span.links(), SizeIs(1));
    EXPECT_EQ(absl::BytesToHexString(one.span.links(0).trace_id()), "4bf92f3577b34da6a3ce929d0e0e4736");
    EXPECT_EQ(absl::BytesToHexString(one.span.links(0).span_id()), "00f067aa0ba902b7");
    EXPECT_EQ(one.span.links(0).flags(), 1);
    EXPECT_EQ(one.span.links(0).trace_state(), "vendor=x");
  }
}

TEST_F(TracingTest, ARefusedBatchLeavesASpanWithTheReason) {
  Register(MakeJob("job", 2));
  const absl::Status refused =
      client_->SubmitBatches(MakeSubmission("job", 0, 1, FakeBatchPlanner::kTooLong)).status();
  ASSERT_FALSE(refused.ok());
  server_->Stop();
  const std::vector<CollectedSpan> spans = collector_.spans();
  ASSERT_THAT(NamesOf(spans), ElementsAre("submit"));
  EXPECT_EQ(spans[0].span.status().code(), opentelemetry::proto::trace::v1::Status::STATUS_CODE_ERROR);
  EXPECT_THAT(spans[0].span.status().message(), HasSubstr(std::string(refused.message())));
}

TEST_F(TracingTest, APlannerThatStopsSendsTheSpansThatWait) {
  Register(MakeJob("job", 2));
  ASSERT_TRUE(client_->SubmitBatches(MakeSubmission("job", 0, 1)).ok());
  ASSERT_TRUE(Read("job", 0)->Next().ok());
  server_->Stop();
  EXPECT_THAT(NamesOf(collector_.SpansOfTrace(TraceOfBatch("job", 0).trace_id)),
              ElementsAre("deliver", "plan", "queue", "submit", "verify"));
}

TEST_F(TracingTest, ACollectorThatIsNotThereHoldsUpNothing) {
  Serve({.otlp_endpoint = WithUnusedPort("127.0.0.1:0").value()});
  Register(MakeJob("job", 2));
  ASSERT_TRUE(client_->SubmitBatches(MakeSubmission("job", 0, 4)).ok());
  Train("job", 4);
  EXPECT_THAT(server_->metrics().Text(), HasSubstr("penstock_spans_exported_total 0\n"));
}

TEST_F(TracingTest, WithoutACollectorNoSpansAreMade) {
  Serve({});
  Register(MakeJob("job", 2));
  ASSERT_TRUE(client_->SubmitBatches(MakeSubmission("job", 0, 1)).ok());
  Train("job", 1);
  EXPECT_THAT(server_->metrics().Text(), Not(HasSubstr("penstock_spans")));
  server_->Stop();
  EXPECT_THAT(collector_.spans(), IsEmpty());
}

}  // namespace
}  // namespace penstock
