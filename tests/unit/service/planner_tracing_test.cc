// What the planner says of a batch, on an engine with a fake planner and a fake clock.
#include "planner/service/main/planner_tracing.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <vector>

#include "common/tracing/batch_trace.h"
#include "tests/support/span_recorder.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/service/engine_fixture.h"

namespace penstock {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using testing::UnorderedElementsAre;

class PlannerTracingTest : public EngineFixture {
 protected:
  PlannerTracingTest() { StartTraced(); }
  // Before what its threads tell goes.
  ~PlannerTracingTest() override { engine_.reset(); }

  // On an empty store; planning takes 5 ms.
  void StartTraced() {
    engine_.reset();
    planners_ = std::make_unique<FakeBatchPlannerFactory>(
        [this](const v1::Batch&) { clock_.Compute(absl::Milliseconds(5)); });
    store_ = std::make_unique<MemoryEventStore>();
    RestartTraced();
  }
  void RestartTraced() {
    engine_.reset();
    engine_ = std::make_unique<PlannerEngine>(
        EngineOptions(), EngineDependencies{planners_.get(), &checker_, store_.get(), &clock_, &tracing_});
    ASSERT_THAT(engine_->Recover(), IsOk());
  }

  std::vector<TraceSpan> Named(const std::string& name) const {
    std::vector<TraceSpan> found = spans_.spans();
    std::erase_if(found, [&](const TraceSpan& span) { return span.name != name; });
    return found;
  }

  SpanRecorder spans_;
  PlannerTracing tracing_{&spans_};
};

TEST_F(PlannerTracingTest, ABatchIsOneTraceFromItsSubmissionToItsLastReport) {
  const auto job = Register(MakeJob("job", 2));
  const absl::Time submitted = clock_.TimeOfDay();
  ASSERT_THAT(job->SubmitBatches(MakeSubmission("job", 0, 1)), IsOk());
  for (uint32_t rank : {0u, 1u}) ASSERT_TRUE(Reader(job, StreamRequest(rank)).Next().has_value());
  clock_.Advance(absl::Milliseconds(200));
  for (uint32_t rank : {0u, 1u}) ASSERT_THAT(job->ReportIteration(MakeReport(rank, 0)), IsOk());
  EXPECT_THAT(spans_.names(), ElementsAre("queue", "plan", "verify", "deliver", "deliver", "batch"));
  const BatchTrace trace = TraceOfBatch("job", 0);
  for (const TraceSpan& span : spans_.spans()) {
    EXPECT_EQ(span.trace_id, trace.trace_id) << span.name;
    EXPECT_EQ(span.parent_id, span.name == "batch" ? "" : trace.root_id) << span.name;
    EXPECT_EQ(AttributeOf(span, "penstock.job"), "job") << span.name;
    EXPECT_EQ(AttributeOf(span, "penstock.iteration"), "0") << span.name;
    EXPECT_LE(submitted, span.start) << span.name;
    EXPECT_LE(span.start, span.end) << span.name;
    EXPECT_TRUE(span.status.ok()) << span.name;
  }
  const TraceSpan root = Named("batch").front();
  EXPECT_EQ(root.start, submitted);
  EXPECT_EQ(root.end - root.start, absl::Milliseconds(205));
  EXPECT_EQ(AttributeOf(root, "penstock.loss"), "3");
}

TEST_F(PlannerTracingTest, PlanningIsApartFromItsCheckAndSaysWhatTheContentIs) {
  const auto job = Register(MakeJob("job", 1));
  ASSERT_THAT(job->SubmitBatches(MakeSubmission("job", 0, 1)), IsOk());
  ASSERT_TRUE(Reader(job, StreamRequest(0)).Next().has_value());
  ASSERT_THAT(Named("plan"), SizeIs(1));
  const TraceSpan plan = Named("plan").front();
  const TraceSpan verify = Named("verify").front();
  EXPECT_EQ(plan.end - plan.start, absl::Milliseconds(5));
  EXPECT_EQ(verify.start, plan.end);
  EXPECT_EQ(Named("queue").front().end, plan.start);
  EXPECT_NE(AttributeOf(plan, "penstock.plan_hash"), "");
  EXPECT_NE(AttributeOf(plan, "penstock.micro_batches"), "");
}

TEST_F(PlannerTracingTest, EachRankHasADeliveryOfItsOwn) {
  const auto job = Register(MakeJob("job", 2));
  ASSERT_THAT(job->SubmitBatches(MakeSubmission("job", 0, 2)), IsOk());
  for (uint32_t rank : {0u, 1u}) {
    Reader reader(job, StreamRequest(rank));
    ASSERT_TRUE(reader.Next().has_value());
    ASSERT_TRUE(reader.Next().has_value());
  }
  std::vector<std::string> delivered;
  for (const TraceSpan& span : Named("deliver")) {
    delivered.push_back(
        absl::StrCat(AttributeOf(span, "penstock.iteration"), " to ", AttributeOf(span, "penstock.rank")));
    EXPECT_GT(AttributeOf(span, "penstock.bytes"), "0");
  }
  EXPECT_THAT(delivered, ElementsAre("0 to 0", "1 to 0", "0 to 1", "1 to 1"));
}

TEST_F(PlannerTracingTest, ABatchThatIsDoneAgainHasNoSecondRoot) {
  const auto job = Register(MakeJob("job", 1));
  ASSERT_THAT(job->SubmitBatches(MakeSubmission("job", 0, 2)), IsOk());
  FormEpoch(*job, 100);
  Train(job, 0, 2, 100);
  ASSERT_THAT(Named("batch"), SizeIs(2));
  v1::HeartbeatRequest lost = MakeHeartbeat(0, 100, job->Status().epoch());
  lost.set_failure("lost");
  ASSERT_THAT(job->Heartbeat(lost), IsOk());
  FormEpoch(*job, 200, /*first_iteration=*/1);
  Train(job, 1, 2, 200);
  EXPECT_THAT(Named("batch"), SizeIs(2));
  EXPECT_THAT(Named("deliver"), SizeIs(3));
}

TEST_F(PlannerTracingTest, AfterARestartOfThePlannerABatchBeginsWhenItIsTakenUp) {
  {
    const auto job = Register(MakeJob("job", 1));
    ASSERT_THAT(job->SubmitBatches(MakeSubmission("job", 0, 2)), IsOk());
    ASSERT_TRUE(Reader(job, StreamRequest(0)).Next().has_value());
    ASSERT_THAT(job->ReportIteration(MakeReport(0, 0)), IsOk());
    ASSERT_THAT(Flush(), IsOk());
  }
  clock_.Advance(absl::Hours(1));
  const absl::Time restarted = clock_.TimeOfDay();
  RestartTraced();
  const auto job = *engine_->FindJob("job");
  ASSERT_TRUE(Reader(job, StreamRequest(0, 1)).Next().has_value());
  ASSERT_THAT(job->ReportIteration(MakeReport(0, 1)), IsOk());
  const std::vector<TraceSpan> roots = Named("batch");
  ASSERT_THAT(roots, SizeIs(2));
  // Waits of the planner's threads move the clock on.
  EXPECT_GE(roots[1].start, restarted);
  EXPECT_LE(roots[1].start, clock_.TimeOfDay());
}

TEST_F(PlannerTracingTest, ABatchThatCannotBePlannedSaysWhy) {
  const auto job = Register(MakeJob("job", 1));
  ASSERT_THAT(job->SubmitBatches(MakeSubmission("job", 0, 1, FakeBatchPlanner::kBadPlan)), IsOk());
  EXPECT_FALSE(Reader(job, StreamRequest(0)).End().ok());
  ASSERT_TRUE(spans_.Await(4));
  EXPECT_THAT(spans_.names(), ElementsAre("queue", "plan", "verify", "batch"));
  EXPECT_TRUE(Named("plan").front().status.ok());
  EXPECT_THAT(Named("verify").front().status, Fails(absl::StatusCode::kInternal, "rule 2"));
  EXPECT_THAT(Named("batch").front().status, Fails(absl::StatusCode::kInternal, "rule 2"));
}

Submission TwoBatches(const absl::Status& status) {
  return {.job_id = "job",
          .first_iteration = 4,
          .batches = 2,
          .began = absl::UnixEpoch(),
          .ended = absl::UnixEpoch() + absl::Milliseconds(3),
          .status = status,
          .caller = SpanLink{.trace_id = std::string(16, 'a'), .span_id = std::string(8, 'b')}};
}

TEST_F(PlannerTracingTest, ACallThatSubmitsIsPartOfEachOfItsBatchesAndLinkedToItsCaller) {
  tracing_.OnSubmitted(TwoBatches(absl::OkStatus()));
  std::vector<std::string> traces;
  for (const TraceSpan& span : Named("submit")) {
    traces.push_back(span.trace_id);
    EXPECT_EQ(span.kind, SpanKind::kServer);
    EXPECT_EQ(span.end - span.start, absl::Milliseconds(3));
    ASSERT_THAT(span.links, SizeIs(1));
    EXPECT_EQ(span.links.front().span_id, std::string(8, 'b'));
  }
  EXPECT_THAT(traces, UnorderedElementsAre(TraceOfBatch("job", 4).trace_id, TraceOfBatch("job", 5).trace_id));
}

TEST_F(PlannerTracingTest, ARefusedSubmissionSaysWhyOnceAndOneThatIsTooEarlyNothing) {
  tracing_.OnSubmitted(TwoBatches(absl::ResourceExhaustedError("beyond the window")));
  EXPECT_THAT(spans_.spans(), IsEmpty());
  tracing_.OnSubmitted(TwoBatches(absl::InvalidArgumentError("batches[1] is wrong")));
  ASSERT_THAT(Named("submit"), SizeIs(1));
  EXPECT_THAT(Named("submit").front().status, Fails(absl::StatusCode::kInvalidArgument, "batches[1]"));
}

}  // namespace
}  // namespace penstock
