// Traces of other frameworks, and of ours, as timelines.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "planner/cli/diagnose/chrome_trace.h"
#include "planner/cli/diagnose/csv_trace.h"
#include "planner/cli/diagnose/diagnosis_report.h"
#include "planner/cli/trace.h"
#include "planner/core/contract/job_from_proto.h"
#include "planner/core/planner.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/cli/diagnose/planned_times.h"
#include "tests/unit/core/job_builder.h"

namespace penstock::cli {
namespace {

using core::OperationKind;
using ::testing::HasSubstr;

// Two stages of one replica; times in seconds.
constexpr char kCsv[] =
    "dp_rank,stage,rank,step,optype,start_ts,duration,mb_id\n"
    "0,0,0,7,forward-compute,0.0,1.0,0\n"
    "0,0,0,7,forward-send,1.0,0.5,-1\n"
    "0,1,4,7,forward-recv,0.0,1.5,-1\n"
    "0,1,4,7,forward-compute,1.5,1.0,0\n"
    "0,1,4,7,backward-compute,2.5,2.0,0\n"
    "0,1,4,7,backward-send,4.5,0.5,-1\n"
    "0,0,0,7,backward-recv,1.5,3.5,-1\n"
    "0,0,0,7,backward-compute,5.0,2.0,0\n"
    "0,0,0,7,optimizer,7.0,0.25,-1\n";

class TracesTest : public ::testing::Test {
 protected:
  absl::StatusOr<core::Timeline> ReadCsv(const std::string& text) const {
    return ReadCsvTrace(folder_.Write("trace.csv", text));
  }
  absl::StatusOr<core::Timeline> ReadChrome(const std::string& text) const {
    return ReadChromeTrace(folder_.Write("trace.json", text));
  }

  const TemporaryFolder folder_;
};

TEST_F(TracesTest, CsvOfOneStepIsReadAndReplayed) {
  const auto timeline = ReadCsv(kCsv);
  ASSERT_TRUE(timeline.ok()) << timeline.status();
  EXPECT_EQ(timeline->stages, 2);
  EXPECT_EQ(timeline->replicas, 1);
  EXPECT_EQ(timeline->rank_numbers, (std::vector<int32_t>{0, 4}));
  ASSERT_EQ(timeline->steps.size(), 1u);
  EXPECT_EQ(timeline->steps[0].number, 7);
  EXPECT_EQ(timeline->steps[0].operations.size(), 9u);
  const auto diagnosis = core::Diagnose(*timeline);
  ASSERT_TRUE(diagnosis.ok()) << diagnosis.status();
  EXPECT_DOUBLE_EQ(diagnosis->measured_ns, 7.25e9);
  EXPECT_DOUBLE_EQ(diagnosis->replay_error, 0);
  EXPECT_THAT(DiagnosisReport(*timeline, *diagnosis), HasSubstr("1 steps of 2 ranks"));
  EXPECT_EQ(DiagnosisJson(*timeline, *diagnosis)["ranks"], 2);
}

TEST_F(TracesTest, TimesMayHaveOtherUnits) {
  const auto timeline = ReadCsv(
      "stage,step,kind,start_us,duration_ms\n"
      "0,0,forward-compute,5,1\n"
      "0,0,backward-compute,1005,2\n");
  ASSERT_TRUE(timeline.ok()) << timeline.status();
  EXPECT_EQ(timeline->steps[0].operations[0].start_ns, 5'000);
  EXPECT_EQ(timeline->steps[0].operations[0].duration_ns, 1'000'000);
}

TEST_F(TracesTest, WhatIsWrongInCsvIsNamedWithItsLine) {
  const auto error = [&](const std::string& from, const std::string& to) {
    return std::string(ReadCsv(absl::StrReplaceAll(kCsv, {{from, to}})).status().message());
  };
  EXPECT_THAT(error("optype", "what"), HasSubstr("line 1: the header has no column optype or kind"));
  EXPECT_THAT(error("start_ts", "begin"),
              HasSubstr("no column start_ts (seconds), start_ms, start_us or start_ns"));
  EXPECT_THAT(error("1.0,0.5,-1", "1.0,half,-1"), HasSubstr("line 3: duration is 'half'; must be a time"));
  EXPECT_THAT(error("1.0,0.5,-1", "1.0,-0.5,-1"), HasSubstr("line 3: duration in ns is -500000000"));
  EXPECT_THAT(error("7.0,0.25,-1", "7.0,0.25"), HasSubstr("line 10: 7 fields; the header has 8"));
  EXPECT_THAT(error("0,1,4,7,backward-compute", "1,1,4,7,backward-compute"),
              HasSubstr("line 6: rank 4 is at replica 1, stage 1, and elsewhere before"));
  EXPECT_THAT(error("-compute", "-other"), HasSubstr("there are no passes"));
  EXPECT_THAT(error("0,1,4", "0,2,4"), HasSubstr("stages go up to 2, but only 2 of them have ranks"));
  EXPECT_THAT(ReadCsv("").status().message(), HasSubstr("is empty"));
  EXPECT_EQ(ReadCsvTrace(folder_.Path("none.csv")).status().code(), absl::StatusCode::kNotFound);
}

// Numbers of micro-batches are names: a large one takes no memory.
TEST_F(TracesTest, MicroBatchesMayHaveAnyNumbers) {
  const auto timeline = ReadCsv(absl::StrReplaceAll(kCsv, {{",0\n", ",1000000\n"}}));
  ASSERT_TRUE(timeline.ok()) << timeline.status();
  for (const core::Operation& operation : timeline->steps[0].operations) EXPECT_LE(operation.micro_batch, 0);
  EXPECT_TRUE(core::Diagnose(*timeline).ok());
  EXPECT_THAT(ReadCsv(absl::StrReplaceAll(kCsv, {{",0\n", ",1000001\n"}})).status().message(),
              HasSubstr("micro_batch is 1000001; must be -1 to 1000000"));
}

TEST_F(TracesTest, ChromeEventsWithoutKindAreLeftOut) {
  const auto timeline = ReadChrome(R"({"traceEvents": [
      {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "rank 0"}},
      {"ph": "X", "name": "aten::mm", "ts": 1, "dur": 2, "args": {"Sequence number": 7}},
      {"ph": "X", "name": "a", "ts": 1.5, "dur": 2, "args": {"stage": 0, "step": 3, "kind": "forward-compute"}},
      {"ph": "X", "name": "b", "ts": 3.5, "dur": 4, "args": {"stage": 0, "step": 3, "kind": "backward-compute"}}]})");
  ASSERT_TRUE(timeline.ok()) << timeline.status();
  ASSERT_EQ(timeline->steps.size(), 1u);
  EXPECT_EQ(timeline->steps[0].operations.size(), 2u);
  EXPECT_EQ(timeline->steps[0].operations[0].start_ns, 1500);
}

TEST_F(TracesTest, WhatIsWrongInAChromeTraceIsNamedWithItsEvent) {
  EXPECT_THAT(ReadChrome("nothing").status().message(), HasSubstr("is neither CSV nor a Chrome trace"));
  EXPECT_THAT(
      ReadChrome(R"([{"ph": "X", "ts": 0, "args": {"stage": 0, "step": 1, "kind": "forward-compute"}}])")
          .status()
          .message(),
      HasSubstr("traceEvents[0]: dur is no time"));
  EXPECT_THAT(
      ReadChrome(R"([{"ph": "X", "ts": 0, "dur": 1, "args": {"stage": "first", "step": 1, "kind": "x"}}])")
          .status()
          .message(),
      HasSubstr("; must be a whole number"));
}

// Our own trace says what every instruction is, and what was foreseen for it.
TEST_F(TracesTest, OurOwnTraceIsReplayed) {
  const v1::JobSpec job = core::GptJob(4, 2, v1::POLICY_DYNAMIC);
  std::vector<std::pair<uint32_t, uint32_t>> lengths;
  for (uint32_t i = 0; i < 40; ++i) lengths.emplace_back(0, 1 + i * i % 97);
  const auto planner = core::Planner::Create(job);
  ASSERT_TRUE(planner.ok()) << planner.status();
  const auto plan = (*planner)->MakePlan(core::MakeBatch(lengths));
  ASSERT_TRUE(plan.ok()) << plan.status();
  Trace trace;
  trace.AddMeasured(*plan, TimesOfRanks(*plan));
  trace.AddPlannedBeside(*plan, 0);
  const auto timeline = ReadChrome(trace.ToJson());
  ASSERT_TRUE(timeline.ok()) << timeline.status();
  EXPECT_EQ(timeline->stages, 4);
  EXPECT_EQ(timeline->replicas, 2);
  const auto diagnosis = core::Diagnose(*timeline);
  ASSERT_TRUE(diagnosis.ok()) << diagnosis.status();
  EXPECT_DOUBLE_EQ(diagnosis->measured_ns, static_cast<double>(plan->predicted().makespan_ns()));
  EXPECT_LT(diagnosis->replay_error, 0.01);
  for (const core::Cause& cause : diagnosis->causes) EXPECT_NE(cause.kind, core::CauseKind::kSlowRank);
}

// The plan has counted with it; it is slow all the same.
TEST_F(TracesTest, ASlowRankIsNamedAlsoWhereThePlanKnowsIt) {
  v1::JobSpec job = core::GptJob(2, 2, v1::POLICY_DYNAMIC);
  v1::SlowRank* const slow = job.mutable_profile()->add_slow_ranks();
  slow->set_rank(2);
  slow->set_factor(1.5);
  std::vector<std::pair<uint32_t, uint32_t>> lengths;
  for (uint32_t i = 0; i < 40; ++i) lengths.emplace_back(0, 1 + i * i % 97);
  const auto planner = core::Planner::Create(job);
  ASSERT_TRUE(planner.ok()) << planner.status();
  const auto plan = (*planner)->MakePlan(core::MakeBatch(lengths));
  ASSERT_TRUE(plan.ok()) << plan.status();
  Trace trace;
  trace.AddMeasured(*plan, TimesOfRanks(*plan), job.profile());
  const auto timeline = ReadChrome(trace.ToJson());
  ASSERT_TRUE(timeline.ok()) << timeline.status();
  const auto diagnosis = core::Diagnose(*timeline);
  ASSERT_TRUE(diagnosis.ok()) << diagnosis.status();
  ASSERT_FALSE(diagnosis->causes.empty());
  EXPECT_EQ(diagnosis->causes[0].kind, core::CauseKind::kSlowRank);
  EXPECT_EQ(diagnosis->causes[0].rank, 2);
  EXPECT_NEAR(diagnosis->causes[0].factor, 1.5, 0.01);
}

}  // namespace
}  // namespace penstock::cli
