#include "worker/metrics/worker_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace penstock::worker {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kRank[] = "rank=\"3\",training_job=\"mix\"";

// FORWARD, WAIT, BACKWARD_INPUT, BACKWARD_WEIGHT, REDUCE_GRADIENTS and OPTIMIZER_STEP that were planned to
// take a second each, but for the WAIT.
Program PlannedProgram() {
  Program program;
  for (const Op op : {Op::kForward, Op::kWait, Op::kBackwardInput, Op::kBackwardWeight, Op::kReduceGradients,
                      Op::kOptimizerStep}) {
    Instruction instruction;
    instruction.id = static_cast<uint32_t>(program.instructions.size());
    instruction.op = op;
    instruction.expected_duration_ns = op == Op::kWait ? 0 : 1'000'000'000;
    program.instructions.push_back(instruction);
  }
  return program;
}

// Two seconds each, and three seconds in which nothing ran.
IterationResult SlowResult() {
  IterationResult result;
  constexpr int64_t kTwoSeconds = 2'000'000'000;
  for (uint32_t id = 0; id < 6; ++id)
    result.instructions.push_back({.id = id, .start_ns = id * kTwoSeconds, .duration_ns = kTwoSeconds});
  result.duration_ns = 15'000'000'000;
  result.peak_memory_bytes = 4096;
  result.expert_load = 1.5;
  return result;
}

class WorkerMetricsTest : public ::testing::Test {
 protected:
  void Join() {
    Registration registration;
    registration.rank = 3;
    registration.epoch = 7;
    metrics_.OnEpochJoined("mix", registration);
  }
  std::string Line(const std::string& name, const std::string& labels, const std::string& value) const {
    return name + "{" + labels + "} " + value + "\n";
  }
  std::string Seconds(const std::string& activity, const std::string& value) const {
    return Line("penstock_worker_activity_seconds_total", "activity=\"" + activity + "\"," + kRank, value);
  }
  std::string Planned(const std::string& activity, const std::string& value) const {
    return Line("penstock_worker_planned_activity_seconds_total", "activity=\"" + activity + "\"," + kRank,
                value);
  }

  MetricsRegistry registry_;
  WorkerMetrics metrics_{registry_};
};

TEST_F(WorkerMetricsTest, SaysWhereTheTimeOfARankGoes) {
  Join();
  for (int i = 0; i < 2; ++i) metrics_.OnIteration(PlannedProgram(), SlowResult(), absl::Milliseconds(250));
  const std::string text = registry_.Text();
  EXPECT_THAT(text, HasSubstr(Line("penstock_worker_iterations_total", kRank, "2")));
  EXPECT_THAT(text, HasSubstr(Seconds("forward", "4")));
  EXPECT_THAT(text, HasSubstr(Seconds("backward", "8"))) << "both halves of a split pass";
  EXPECT_THAT(text, HasSubstr(Seconds("transfer_wait", "4")));
  EXPECT_THAT(text, HasSubstr(Seconds("reduce_gradients", "4")));
  EXPECT_THAT(text, HasSubstr(Seconds("optimizer_step", "4")));
  EXPECT_THAT(text, HasSubstr(Seconds("program_wait", "0.5")));
  EXPECT_THAT(text, HasSubstr(Seconds("other", "6"))) << "what no instruction took";
  EXPECT_THAT(text, HasSubstr(Planned("backward", "4")));
  EXPECT_THAT(text, HasSubstr(Planned("optimizer_step", "2")));
  for (const char* waiting : {"transfer_wait", "reduce_gradients"}) {
    EXPECT_THAT(text, Not(HasSubstr(Planned(waiting, "")))) << "planned is a transfer, not who waits for it";
  }
  EXPECT_THAT(text, HasSubstr(Line("penstock_worker_peak_memory_bytes", kRank, "4096")));
  EXPECT_THAT(text, HasSubstr(Line("penstock_worker_expert_load_ratio", kRank, "1.5")));
}

TEST_F(WorkerMetricsTest, OfAReductionCountsWhatNoPassRunsBeside) {
  Join();
  IterationResult result = SlowResult();
  // From the middle of the first backward pass to where the optimizer begins.
  result.instructions[4] = {.id = 4, .start_ns = 5'000'000'000, .duration_ns = 5'000'000'000};
  metrics_.OnIteration(PlannedProgram(), result, absl::ZeroDuration());
  const std::string text = registry_.Text();
  EXPECT_THAT(text, HasSubstr(Seconds("reduce_gradients", "2")));
  EXPECT_THAT(text, HasSubstr(Seconds("backward", "4")));
}

TEST_F(WorkerMetricsTest, StreamsThatRunSideBySideLeaveNoNegativeRest) {
  Join();
  IterationResult result = SlowResult();
  result.duration_ns = 1'000'000'000;
  metrics_.OnIteration(PlannedProgram(), result, absl::ZeroDuration());
  EXPECT_THAT(registry_.Text(), HasSubstr(Seconds("other", "0")));
}

TEST_F(WorkerMetricsTest, MemoryThatIsNotCountedIsNotShown) {
  Join();
  IterationResult result = SlowResult();
  result.peak_memory_bytes = 0;
  result.expert_load = 0;
  metrics_.OnIteration(PlannedProgram(), result, absl::ZeroDuration());
  EXPECT_THAT(registry_.Text(), Not(HasSubstr("penstock_worker_peak_memory_bytes{")));
  EXPECT_THAT(registry_.Text(), Not(HasSubstr("penstock_worker_expert_load_ratio{")));
}

TEST_F(WorkerMetricsTest, SaysWhenAndHowACheckpointWasWritten) {
  Join();
  metrics_.OnCheckpointPart(1000, absl::Seconds(2));
  const std::string text = registry_.Text();
  EXPECT_THAT(text, HasSubstr(Line("penstock_worker_checkpoint_bytes", kRank, "1000")));
  EXPECT_THAT(text, HasSubstr(Line("penstock_worker_checkpoint_write_seconds_sum", kRank, "2")));
  EXPECT_THAT(text, HasSubstr("penstock_worker_checkpoint_written_timestamp_seconds{"));
}

TEST_F(WorkerMetricsTest, CountsCheckpointsThatAreGivenUp) {
  Join();
  metrics_.OnCheckpointFailed(absl::ResourceExhaustedError("No space left on device"));
  EXPECT_THAT(registry_.Text(), testing::ContainsRegex("penstock_worker_checkpoint_failures_total\\{[^}]*"
                                                       "RESOURCE_EXHAUSTED[^}]*\\} 1"));
}

TEST_F(WorkerMetricsTest, CountsRescuesByTheirEnd) {
  Join();
  metrics_.OnRescue("complete", absl::Seconds(3));
  const std::string text = registry_.Text();
  EXPECT_THAT(text, testing::ContainsRegex("penstock_worker_rescues_total\\{[^}]*complete[^}]*\\} 1"));
  EXPECT_THAT(text, HasSubstr(Line("penstock_worker_rescue_seconds_sum", kRank, "3")));
}

TEST_F(WorkerMetricsTest, CountsFailedEpochsByTheirReason) {
  metrics_.OnEpochFailed(absl::UnavailableError("no planner"));
  Join();
  metrics_.OnEpochFailed(absl::UnavailableError("rank 1 was lost"));
  const std::string text = registry_.Text();
  EXPECT_THAT(text, HasSubstr(Line("penstock_worker_epoch", kRank, "7")));
  EXPECT_THAT(text, HasSubstr(Line("penstock_worker_epoch_failures_total", "code=\"UNAVAILABLE\"", "1")))
      << "before the rank is known";
  EXPECT_THAT(text, HasSubstr(Line("penstock_worker_epoch_failures_total",
                                   std::string("code=\"UNAVAILABLE\",") + kRank, "1")));
}

}  // namespace
}  // namespace penstock::worker
