#include "worker/tracing/worker_tracing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/tracing/batch_trace.h"
#include "tests/support/span_recorder.h"

namespace penstock::worker {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kStart = 1'800'000'000'000'000'000;

// A micro-batch of two samples, and a FORWARD, a WAIT, a BACKWARD and an OPTIMIZER_STEP.
Program SmallProgram() {
  Program program;
  program.iteration = 7;
  program.rank = 3;
  program.replica = 1;
  program.strategy = 4;
  for (const Op op : {Op::kForward, Op::kWait, Op::kBackward, Op::kOptimizerStep}) {
    Instruction instruction;
    instruction.id = static_cast<uint32_t>(program.instructions.size());
    instruction.op = op;
    program.instructions.push_back(instruction);
  }
  MicroBatch micro_batch;
  micro_batch.input_tokens = {10, 20};
  micro_batch.target_tokens = {5, 1};
  micro_batch.computed_tokens = 60;
  program.micro_batches.push_back(micro_batch);
  return program;
}

// 10 ns, 20, 30 and 40, and 5 in which nothing ran.
IterationResult MeasuredResult() {
  IterationResult result;
  for (uint32_t id = 0; id < 4; ++id)
    result.instructions.push_back({.id = id, .start_ns = id * 100, .duration_ns = (id + 1) * 10});
  result.started_unix_ns = kStart;
  result.duration_ns = 105;
  return result;
}

TEST(WorkerTracingTest, AnIterationIsPartOfTheTraceOfItsBatch) {
  SpanRecorder spans;
  WorkerTracing(&spans, "mix").OnIteration(SmallProgram(), MeasuredResult(), 2, absl::Nanoseconds(9));
  ASSERT_THAT(spans.names(), ElementsAre("iteration"));
  const TraceSpan span = spans.spans().front();
  const BatchTrace trace = TraceOfBatch("mix", 7);
  EXPECT_EQ(span.trace_id, trace.trace_id);
  EXPECT_EQ(span.parent_id, trace.root_id);
  EXPECT_EQ(absl::ToUnixNanos(span.start), kStart);
  EXPECT_EQ(absl::ToUnixNanos(span.end), kStart + 105);
  EXPECT_TRUE(span.status.ok());
}

TEST(WorkerTracingTest, SaysWhoRanWhatAndWhereTheTimeWent) {
  SpanRecorder spans;
  WorkerTracing(&spans, "mix").OnIteration(SmallProgram(), MeasuredResult(), 2, absl::Nanoseconds(9));
  const TraceSpan span = spans.spans().front();
  const auto expect = [&](const char* key, const char* value) {
    EXPECT_EQ(AttributeOf(span, key), value) << key;
  };
  expect("penstock.job", "mix");
  expect("penstock.iteration", "7");
  expect("penstock.rank", "3");
  expect("penstock.replica", "1");
  expect("penstock.strategy", "4");
  expect("penstock.epoch", "2");
  expect("penstock.real_tokens", "36");
  expect("penstock.computed_tokens", "60");
  expect("penstock.measured_ns", "105");
  expect("penstock.forward_ns", "10");
  expect("penstock.transfer_wait_ns", "20");
  expect("penstock.backward_ns", "30");
  expect("penstock.optimizer_step_ns", "40");
  expect("penstock.program_wait_ns", "9");
  expect("penstock.other_ns", "5");
}

TEST(WorkerTracingTest, AnIterationThatFailedSaysWhy) {
  SpanRecorder spans;
  const absl::Time began = absl::FromUnixNanos(kStart);
  WorkerTracing(&spans, "mix")
      .OnIterationFailed(SmallProgram(), 2, began, began + absl::Seconds(1),
                         absl::UnavailableError("rank 1 was lost"));
  ASSERT_THAT(spans.names(), ElementsAre("iteration"));
  const TraceSpan span = spans.spans().front();
  EXPECT_EQ(span.status, absl::UnavailableError("rank 1 was lost"));
  EXPECT_EQ(span.end - span.start, absl::Seconds(1));
  EXPECT_EQ(AttributeOf(span, "penstock.rank"), "3");
}

TEST(WorkerTracingTest, SaysNothingWhereNobodyListens) {
  const WorkerTracing tracing(nullptr, "mix");
  tracing.OnIteration(SmallProgram(), MeasuredResult(), 2, absl::ZeroDuration());
  tracing.OnIterationFailed(SmallProgram(), 2, absl::UnixEpoch(), absl::UnixEpoch(), absl::OkStatus());
}

}  // namespace
}  // namespace penstock::worker
