#include "planner/cli/trace.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/unit/verify/plan_fixture.h"

namespace penstock::cli {
namespace {

using Json = nlohmann::json;

Json EventsOf(const Trace& trace) {
  const Json json = Json::parse(trace.ToJson(), nullptr, /*allow_exceptions=*/false);
  EXPECT_FALSE(json.is_discarded());
  return json["traceEvents"];
}

v1::Plan PlanWithTimes() {
  v1::Plan plan = core::MakeValidPlan({.pipeline = 2, .replicas = 2}).plan();
  for (v1::Program& program : *plan.mutable_programs())
    for (v1::Instruction& instruction : *program.mutable_instructions()) {
      instruction.set_expected_start_ns(1000 * instruction.id());
      instruction.set_expected_duration_ns(500);
    }
  return plan;
}

int Count(const Json& events, const std::string& phase) {
  return static_cast<int>(
      std::count_if(events.begin(), events.end(), [&](const Json& e) { return e["ph"] == phase; }));
}

TEST(Trace, HasASliceForEveryInstruction) {
  const v1::Plan plan = PlanWithTimes();
  Trace trace;
  trace.AddPredicted(plan, 2'000'000);
  const Json events = EventsOf(trace);
  int instructions = 0;
  for (const v1::Program& program : plan.programs()) instructions += program.instructions_size();
  EXPECT_EQ(Count(events, "X"), instructions);
  const auto forward =
      std::find_if(events.begin(), events.end(), [](const Json& e) { return e["name"] == "FORWARD 1"; });
  ASSERT_NE(forward, events.end());
  const uint32_t id = (*forward)["args"]["id"];
  EXPECT_DOUBLE_EQ((*forward)["ts"], 2000.0 + id);
  EXPECT_DOUBLE_EQ((*forward)["dur"], 0.5);
  EXPECT_EQ((*forward)["tid"], static_cast<int>(v1::STREAM_COMPUTE));
  EXPECT_EQ((*forward)["args"]["micro_batch"], 1);
}

TEST(Trace, NamesEachRankAndStreamOnce) {
  const v1::Plan plan = PlanWithTimes();
  Trace trace;
  trace.AddPredicted(plan);
  trace.AddPredicted(plan, 1'000'000);
  std::map<std::string, int> names;
  for (const Json& event : EventsOf(trace))
    if (event["ph"] == "M") ++names[event["name"]];
  EXPECT_EQ(names["process_name"], 4);
  EXPECT_EQ(names["thread_name"], 16);
}

TEST(Trace, WhatWasPlannedStandsBelowWhatWasMeasuredWithNamesAndTimesAlone) {
  const v1::Plan plan = PlanWithTimes();
  Trace trace;
  trace.AddMeasured(plan, {{{0, 10'000, 20'000}}});
  trace.AddPlannedBeside(plan, 10'000);
  trace.AddPlannedBeside(plan, 50'000);
  std::map<std::string, int64_t> position_of;
  std::map<int64_t, std::string> name_of;
  std::map<int64_t, int> slices;
  for (const Json& event : EventsOf(trace)) {
    if (event["name"] == "process_name") name_of[event["pid"]] = event["args"]["name"];
    if (event["name"] == "process_sort_index")
      position_of[name_of.at(event["pid"])] = event["args"]["sort_index"];
    if (event["ph"] != "X" || event["cat"] != "planned") continue;
    EXPECT_FALSE(event.contains("args")) << event;
    EXPECT_GE(event["ts"], 10.0);
    EXPECT_DOUBLE_EQ(event["dur"], 0.5);
    ++slices[event["pid"]];
  }
  ASSERT_EQ(slices.size(), 4u);
  EXPECT_EQ(slices.begin()->second, 2 * plan.programs(0).instructions_size());
  EXPECT_EQ(name_of.at(slices.begin()->first), "rank 0, planned");
  const auto measured = std::ranges::find_if(
      position_of, [](const auto& named) { return named.first.starts_with("rank 0 ("); });
  ASSERT_NE(measured, position_of.end());
  EXPECT_EQ(position_of.at("rank 0, planned"), measured->second + 1);
}

TEST(Trace, ArrowsLeadFromEachSendToItsRecv) {
  Trace trace;
  trace.AddPredicted(PlanWithTimes());
  std::set<std::string> begun, ended;
  for (const Json& event : EventsOf(trace)) {
    if (event["ph"] == "s" && !begun.insert(event["id"]).second)
      ADD_FAILURE() << "two arrows begin: " << event;
    if (event["ph"] == "f" && !ended.insert(event["id"]).second) ADD_FAILURE() << "two arrows end: " << event;
  }
  EXPECT_EQ(begun.size(), 12u);  // two replicas x three micro-batches x two directions
  EXPECT_EQ(begun, ended);
}

TEST(Trace, MemoryBeginsAndEndsWithWhatIsAlwaysThere) {
  Trace trace;
  trace.AddPredicted(PlanWithTimes());
  std::map<int, double> last;
  for (const Json& event : EventsOf(trace))
    if (event["ph"] == "C") last[event["pid"]] = event["args"]["MB"];
  ASSERT_EQ(last.size(), 4u);
  for (const auto& [rank, megabytes] : last) EXPECT_DOUBLE_EQ(megabytes, 0.005) << rank;
}

TEST(Trace, MemoryCountersStandBesideTheirLimit) {
  Trace trace;
  trace.AddPredicted(PlanWithTimes());
  int counters = 0;
  for (const Json& event : EventsOf(trace)) {
    if (event["ph"] != "C") continue;
    ++counters;
    EXPECT_LE(event["args"]["MB"], 1.0);
    EXPECT_EQ(event["name"], "memory (limit 1.0 MB)");
  }
  EXPECT_GT(counters, 4);
}

TEST(Trace, NamesBothHalvesOfASplitBackward) {
  Trace trace;
  trace.AddPredicted(core::MakeValidPlan({.pipeline = 2, .replicas = 1, .split_backward = true}).plan());
  std::map<std::string, int> names;
  for (const Json& event : EventsOf(trace))
    if (event["ph"] == "X") ++names[event["name"]];
  EXPECT_EQ(names["BACKWARD_INPUT 2"], 2);
  EXPECT_EQ(names["BACKWARD_WEIGHT 2"], 2);
  EXPECT_EQ(names.count("BACKWARD 2"), 0u);
}

TEST(Trace, NamesTheStageWhereARankHasSeveral) {
  Trace trace;
  trace.AddPredicted(core::MakeValidPlan({.pipeline = 2, .replicas = 1, .stages_per_rank = 2}).plan());
  std::map<std::string, int> names;
  for (const Json& event : EventsOf(trace))
    if (event["ph"] == "X") ++names[event["name"]];
  EXPECT_EQ(names["FORWARD 1, stage 3"], 1);
  EXPECT_EQ(names.count("FORWARD 1"), 0u);
}

v1::Plan PlanWithGroups() {
  v1::Plan plan = core::MakeValidPlan(
                      {.pipeline = 2, .replicas = 1, .layout = v1::LAYOUT_PACKED, .context = 2, .tensor = 2})
                      .plan();
  for (v1::Program& program : *plan.mutable_programs()) {
    for (v1::Instruction& instruction : *program.mutable_instructions()) {
      if (instruction.op() != v1::OP_FORWARD) continue;
      instruction.set_own_duration_ns(2'000'000);
      instruction.mutable_exchange()->set_tensor_bytes(7);
      instruction.mutable_exchange()->set_context_exposed_ns(500'000);
    }
  }
  return plan;
}

TEST(Trace, SaysWhatAPassOfAStageGroupExchangesAndTakesAlone) {
  Trace trace;
  trace.AddPredicted(PlanWithGroups());
  int passes = 0;
  std::set<std::string> names;
  for (const Json& event : EventsOf(trace)) {
    if (event["name"] == "process_name") names.insert(event["args"]["name"]);
    if (event["ph"] != "X" || event["name"] != "FORWARD 0") continue;
    ++passes;
    EXPECT_EQ(event["cat"], "compute");
    EXPECT_DOUBLE_EQ(event["args"]["own_ms"], 2);
    EXPECT_EQ(event["args"]["tensor_bytes"], 7);
    EXPECT_DOUBLE_EQ(event["args"]["context_exposed_ms"], 0.5);
    EXPECT_FALSE(event["args"].contains("bytes"));
  }
  EXPECT_EQ(passes, 8);
  EXPECT_EQ(names.count("rank 7 (replica 0, stage 1, c1 t1)"), 1u);
}

TEST(Trace, ArrowsOfAStageGroupLeadFromEachPlaceToItsEqual) {
  Trace trace;
  trace.AddPredicted(PlanWithGroups());
  std::set<std::string> begun, ended;
  for (const Json& event : EventsOf(trace)) {
    if (event["ph"] == "s" && !begun.insert(event["id"]).second)
      ADD_FAILURE() << "two arrows begin: " << event;
    if (event["ph"] == "f" && !ended.insert(event["id"]).second) ADD_FAILURE() << "two arrows end: " << event;
  }
  EXPECT_EQ(begun.size(), 24u);  // four places x three micro-batches x two directions
  EXPECT_EQ(begun, ended);
}

TEST(Trace, TakesMeasuredTimesAndLeavesOutWhatThePlanLacks) {
  Trace trace;
  trace.AddMeasured(PlanWithTimes(), {{{0, 10'000, 20'000}, {100000, 0, 1}}});
  const Json events = EventsOf(trace);
  ASSERT_EQ(Count(events, "X"), 1);
  for (const Json& event : events) {
    if (event["ph"] == "X") {
      EXPECT_DOUBLE_EQ(event["ts"], 10.0);
    }
  }
}

}  // namespace
}  // namespace penstock::cli
