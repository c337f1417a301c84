#include "planner/cli/trace_recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "planner/core/planner.h"
#include "tests/unit/cli/diagnose/planned_times.h"
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
