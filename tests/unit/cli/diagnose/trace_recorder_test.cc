#include "planner/cli/trace_recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "planner/cli/diagnose/chrome_trace.h"
#include "planner/core/diagnose/diagnose.h"
#include "planner/core/planner.h"
#include "planner/core/timeline/timeline_of_iterations.h"
#include "tests/unit/cli/diagnose/planned_times.h"
#include "tests/unit/core/group_jobs.h"
#include "tests/unit/core/job_builder.h"

namespace penstock::cli {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;

constexpr int64_t kNewYear = 1'800'000'000'000'000'000;
constexpr int64_t kMillisecond = 1'000'000;

// Two stages of two replicas.
v1::Plan MakePlan() {
  std::vector<std::pair<uint32_t, uint32_t>> lengths;
  for (uint32_t i = 0; i < 24; ++i) lengths.emplace_back(0, 1 + i * i % 97);
  const auto planner = core::Planner::Create(core::GptJob(2, 2, v1::POLICY_DYNAMIC));
  EXPECT_TRUE(planner.ok()) << planner.status();
  auto plan = (*planner)->MakePlan(core::MakeBatch(lengths));
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *std::move(plan);
}

// The plan as it was run `after_ns`, by clocks of ranks that are so far ahead.
v1::GetIterationResponse Measured(const v1::Plan& plan, int64_t after_ns,
                                  const std::vector<int64_t>& ahead_ns) {
  v1::GetIterationResponse iteration;
  *iteration.mutable_plan() = plan;
  const auto times = TimesOfRanks(plan);
  for (size_t rank = 0; rank < times.size(); ++rank) {
    v1::ReportIterationRequest* const report = iteration.add_reports();
    report->set_rank(static_cast<uint32_t>(rank));
    report->set_started_unix_ns(kNewYear + after_ns + ahead_ns[rank]);
    for (const InstructionTime& time : times[rank]) {
      v1::MeasuredInstruction* const measured = report->add_instructions();
      measured->set_id(time.id);
      measured->set_start_ns(time.start_ns);
      measured->set_duration_ns(time.duration_ns);
    }
  }
  return iteration;
}

// The shortest arrow of the trace, microseconds.
double ShortestArrow(const std::string& trace) {
  std::map<std::string, double> started;
  double shortest = 1e18;
  const Json events = Json::parse(trace)["traceEvents"];
  for (const Json& event : events)
    if (event["ph"] == "s") started[event["id"]] = event["ts"];
  for (const Json& event : events)
    if (event["ph"] == "f")
      shortest = std::min(shortest, event["ts"].get<double>() - started.at(event["id"]));
  EXPECT_FALSE(started.empty());
  return shortest;
}

TEST(TraceRecorderTest, ClocksThatDisagreeArePutRight) {
  const v1::Plan plan = MakePlan();
  TraceRecorder recorder;
  recorder.Add(Measured(plan, 0, {0, 400 * kMillisecond, -700 * kMillisecond, 3}));
  EXPECT_GE(ShortestArrow(recorder.ToJson()), 0);
  EXPECT_THAT(recorder.ClockNote(), HasSubstr("put right by what ranks sent each other, to within"));
}

TEST(TraceRecorderTest, ClocksThatAgreeAreLeftAsTheyAre) {
  const v1::Plan plan = MakePlan();
  TraceRecorder recorder;
  recorder.Add(Measured(plan, 0, {0, 0, 0, 0}));
  recorder.Add(Measured(plan, 900 * kMillisecond, {0, 0, 0, 0}));
  EXPECT_EQ(recorder.ClockNote(), "");
  Trace unchanged;
  for (const int64_t after_ns : {int64_t{0}, 900 * kMillisecond}) {
    auto times = TimesOfRanks(plan);
    for (auto& of_rank : times)
      for (InstructionTime& time : of_rank) time.start_ns += after_ns;
    unchanged.AddMeasured(plan, times);
    unchanged.AddPlannedBeside(plan, after_ns);
  }
  EXPECT_EQ(recorder.ToJson(), unchanged.ToJson());
}

// Waits for batches, and cores that others had, too.
TEST(TraceRecorderTest, ATraceSaysAllThatIsDiagnosed) {
  v1::Plan plan = MakePlan();
  TraceRecorder recorder;
  for (uint64_t i = 0; i < 3; ++i) {
    plan.set_iteration(i);
    v1::GetIterationResponse iteration =
        Measured(plan, static_cast<int64_t>(i) * 1000 * kMillisecond, {0, 0, 0, 0});
    for (v1::ReportIterationRequest& report : *iteration.mutable_reports()) {
      report.set_waited_for_program_ns(plan.predicted().makespan_ns());
      report.set_lone_pass_ns(10 * kMillisecond);
      report.set_lone_pass_core_ns(8 * kMillisecond);
    }
    recorder.Add(std::move(iteration));
  }
  const auto direct = core::TimelineOfIterations(recorder.Measurements());
  ASSERT_TRUE(direct.ok()) << direct.status();
  const auto read = ParseChromeTrace("trace", recorder.ToJson());
  ASSERT_TRUE(read.ok()) << read.status();
  const auto of_direct = core::Diagnose(*direct), of_read = core::Diagnose(*read);
  ASSERT_TRUE(of_direct.ok()) << of_direct.status();
  ASSERT_TRUE(of_read.ok()) << of_read.status();
  ASSERT_EQ(of_direct->causes.size(), of_read->causes.size());
  ASSERT_GE(of_direct->causes.size(), 2u);
  for (size_t i = 0; i < of_direct->causes.size(); ++i) {
    EXPECT_EQ(of_direct->causes[i].kind, of_read->causes[i].kind);
    EXPECT_NEAR(of_direct->causes[i].gain, of_read->causes[i].gain, 1e-3);
  }
  EXPECT_EQ(of_direct->causes[0].kind, core::CauseKind::kLateBatches);
  EXPECT_EQ(of_direct->causes[1].kind, core::CauseKind::kSharedCores);
  EXPECT_EQ(of_direct->causes[1].ring, (std::vector<int32_t>{0, 1, 2, 3}));
  // Ranks of the first iteration had just started.
  EXPECT_EQ(direct->steps[0].operations.size() + 4, direct->steps[1].operations.size());
}

// Two tensor ranks, of which one computes 1.5 times as long as foreseen, and the other waits for it.
TEST(TraceRecorderTest, ATraceSaysWhichRankOfAGroupIsSlow) {
  v1::JobSpec job = core::GptJob(1, 1, v1::POLICY_DYNAMIC);
  core::SetGroup(/*context=*/1, /*tensor=*/2, &job);
  const auto planner = core::Planner::Create(job);
  ASSERT_TRUE(planner.ok()) << planner.status();
  auto plan = (*planner)->MakePlan(core::MakeBatch({{0, 50}, {0, 70}, {0, 20}, {0, 90}}));
  ASSERT_TRUE(plan.ok()) << plan.status();
  TraceRecorder recorder;
  for (uint64_t i = 0; i < 3; ++i) {
    plan->set_iteration(i);
    v1::GetIterationResponse iteration =
        Measured(*plan, static_cast<int64_t>(i) * 1000 * kMillisecond, {0, 0});
    for (v1::ReportIterationRequest& report : *iteration.mutable_reports()) {
      for (v1::MeasuredInstruction& measured : *report.mutable_instructions()) {
        const v1::Instruction& planned =
            plan->programs(static_cast<int>(report.rank())).instructions(static_cast<int>(measured.id()));
        if (!planned.has_exchange()) continue;
        const int64_t computing = planned.own_duration_ns() - planned.exchange().tensor_ns();
        measured.set_exchange_ns(measured.duration_ns() - computing * (report.rank() == 1 ? 3 : 2) / 3);
      }
    }
    recorder.Add(std::move(iteration));
  }
  const auto read = ParseChromeTrace("trace", recorder.ToJson());
  ASSERT_TRUE(read.ok()) << read.status();
  const auto diagnosis = core::Diagnose(*read);
  ASSERT_TRUE(diagnosis.ok()) << diagnosis.status();
  std::vector<int32_t> slow;
  for (const core::Cause& cause : diagnosis->causes) {
    if (cause.kind == core::CauseKind::kSlowRank) slow.push_back(cause.rank);
  }
  EXPECT_EQ(slow, std::vector<int32_t>{1});
  EXPECT_THAT(recorder.ToJson(), HasSubstr("\"exchange_ms\":"));
}

TEST(TraceRecorderTest, OfALongRunTheLastIterationsAreHeld) {
  v1::Plan plan = MakePlan();
  const size_t bytes = Measured(plan, 0, {0, 0, 0, 0}).ByteSizeLong();
  TraceRecorder recorder(bytes * 5 / 2);
  for (uint64_t i = 0; i < 6; ++i) {
    plan.set_iteration(i);
    recorder.Add(Measured(plan, static_cast<int64_t>(i) * 1000 * kMillisecond, {0, 0, 0, 0}));
  }
  EXPECT_EQ(recorder.forgotten(), 4u);
  EXPECT_THAT(recorder.ToJson(), HasSubstr("\"iteration\":5"));
  EXPECT_THAT(recorder.ToJson(), ::testing::Not(HasSubstr("\"iteration\":3")));
}

}  // namespace
}  // namespace penstock::cli
