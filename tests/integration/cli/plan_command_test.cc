// `penstock plan` as a user runs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "common/process/sanitized.h"
#include "tests/integration/cli/planning_commands.h"

namespace penstock {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

TEST_F(PlanningCommands, PlanPrintsWhatTheIterationWillTake) {
  const Ended ended = Plan({"--pp", "2", "--dp", "2", "--stage-split", "even"});
  EXPECT_EQ(ended.code, 0) << ended.errors;
  EXPECT_THAT(ended.output, AllOf(HasSubstr("makespan"), HasSubstr("lower bound"), HasSubstr("peak MB")));
  EXPECT_THAT(ended.output,
              AllOf(HasSubstr("schedule"), HasSubstr("layers per stage    2,2"), HasSubstr("(fill ")));
  EXPECT_THAT(ended.errors, IsEmpty());
}

TEST_F(PlanningCommands, PlanPrintsJson) {
  const Ended ended = Plan({"--pp", "2", "--json", "--policy", "packed", "--stage-split", "even"});
  ASSERT_EQ(ended.code, 0) << ended.errors;
  const Json row = Parse(ended.output);
  for (const char* field : kRowFields) EXPECT_TRUE(row.contains(field)) << field;
  EXPECT_EQ(row.size(), std::size(kRowFields));
  EXPECT_EQ(row["policy"], "packed");
  EXPECT_EQ(row["samples"], 24);
  EXPECT_EQ(row["feasible"], true);
  EXPECT_GE(row["makespan_ms"].get<double>(), row["lower_bound_ms"].get<double>());
  EXPECT_GE(row["makespan_ms"].get<double>(), row["last_backward_ms"].get<double>());
  EXPECT_EQ(row["layers_per_stage"], Json::array({2, 2}));
  double bubble = 0;
  for (const Json& share : row["bubble_by_cause"]) bubble += share.get<double>();
  EXPECT_NEAR(bubble, row["bubble"].get<double>(), 1e-9);
}

TEST_F(PlanningCommands, PlanShowsOverHowManyContextRanksSamplesAreDivided) {
  const Ended ended = Plan({"--cp", "4", "--pp", "2"});
  EXPECT_EQ(ended.code, 0) << ended.errors;
  EXPECT_THAT(ended.output,
              AllOf(HasSubstr("mesh                pp 2 x dp 1 x cp 4\n"),
                    HasSubstr("\nspans               "), HasSubstr("rank  stage  context  tensor")));
  const Ended json = Plan({"--cp", "4", "--pp", "2", "--json"});
  ASSERT_EQ(json.code, 0) << json.errors;
  const Json row = Parse(json.output);
  int samples = 0;
  for (const Json& count : row["spans"]) samples += count.get<int>();
  EXPECT_EQ(samples, 24);
  double bubble = 0;
  for (const Json& share : row["bubble_by_cause"]) bubble += share.get<double>();
  EXPECT_NEAR(bubble, row["bubble"].get<double>(), 1e-9);
  EXPECT_GT(row["bubble_by_cause"]["group"].get<double>(), 0);
}

TEST_F(PlanningCommands, ExplainSaysWhatTwiceTheContextRanksBring) {
  const Ended ended = Plan({"--cp", "2", "--effort", "fast", "--explain"});
  EXPECT_EQ(ended.code, 0) << ended.errors;
  EXPECT_THAT(ended.output, HasSubstr("twice the context ranks, and GPUs"));
  // The profile has no figures of tensor ranks.
  EXPECT_THAT(ended.output, testing::Not(HasSubstr("twice the tensor ranks")));
}

TEST_F(PlanningCommands, TheExamplesOfTheRepositoryPlan) {
  const std::string examples = PENSTOCK_EXAMPLES;
  const Ended ended =
      penstock_.Run({"plan", "--profile", examples + "/gpt_7b.json", "--lengths", examples + "/lengths.csv",
                     "--rows", kSanitized ? "0:128" : "0:256", "--pp", "4", "--dp", "2", "--max-length",
                     "8192", "--effort", "fast", "--json"});
  ASSERT_EQ(ended.code, 0) << ended.errors;
  EXPECT_LT(Parse(ended.output)["gap"].get<double>(), 0.15);
}

TEST_F(PlanningCommands, APlanCanBeWrittenWhereTextIsPrinted) {
  const Ended ended = Plan({"--pp", "2", "--out", "/dev/stdout"});
  ASSERT_EQ(ended.code, 0) << ended.errors;
  const size_t summary = ended.output.find("\npolicy ");
  ASSERT_NE(summary, std::string::npos) << ended.output;
  EXPECT_TRUE(Parse(ended.output.substr(0, summary)).contains("plan"));
}

TEST_F(PlanningCommands, PlanWritesATraceOfAllRanks) {
  ASSERT_EQ(Plan({"--pp", "2", "--dp", "2", "--trace", Path("t.json")}).code, 0);
  const Json events = Parse(penstock_.folder().Read("t.json"))["traceEvents"];
  int processes = 0, sends = 0, receives = 0;
  for (const Json& event : events) {
    processes += event["name"] == "process_name" ? 1 : 0;
    sends += event["ph"] == "s" ? 1 : 0;
    receives += event["ph"] == "f" ? 1 : 0;
  }
  EXPECT_EQ(processes, 4);
  EXPECT_GT(sends, 0);
  EXPECT_EQ(sends, receives);
}

TEST_F(PlanningCommands, PlanWritesATimelineAsOnePage) {
  ASSERT_EQ(Plan({"--pp", "2", "--dp", "2", "--html", Path("t.html"), "--out", Path("plan.json")}).code, 0);
  const std::string page = penstock_.folder().Read("t.html");
  EXPECT_THAT(page, AllOf(testing::StartsWith("<!DOCTYPE html>"), testing::EndsWith("</html>\n")));
  const std::string open = "id=\"plan\">";
  const size_t begin = page.find(open) + open.size();
  const Json data = Parse(page.substr(begin, page.find("</script>", begin) - begin));
  const Json plan = Parse(penstock_.folder().Read("plan.json"))["plan"];
  ASSERT_EQ(data["ranks"].size(), 4u);
  for (size_t rank = 0; rank < 4; ++rank)
    EXPECT_EQ(data["ranks"][rank]["instructions"].size(), plan["programs"][rank]["instructions"].size());
  EXPECT_EQ(std::to_string(data["makespan"].get<int64_t>()), plan["predicted"]["makespan_ns"]);
}

TEST_F(PlanningCommands, PlanExplainsWhereTheTimeGoesAndWhatWouldHelp) {
  const Ended text = Plan({"--pp", "2", "--dp", "2", "--explain"});
  EXPECT_EQ(text.code, 0) << text.errors;
  EXPECT_THAT(text.output, AllOf(HasSubstr("where the time goes"), HasSubstr("useful work"),
                                 HasSubstr("what if"), HasSubstr("unlimited memory"), HasSubstr("bound")));
  const Ended json = Plan({"--pp", "2", "--dp", "2", "--explain", "--json"});
  ASSERT_EQ(json.code, 0) << json.errors;
  const Json row = Parse(json.output);
  double sum = 0;
  for (const Json& share : row["explain"]["time"]["mean"]) sum += share.get<double>();
  EXPECT_NEAR(sum, 1, 1e-9);
  for (const Json& what_if : row["explain"]["what_if"]) {
    if (what_if["condition"] != "unlimited memory") continue;
    EXPECT_LE(what_if["makespan_ms"].get<double>(), row["makespan_ms"].get<double>());
  }
  ExpectWrongRequest(penstock_.Run({"plan", "--from", Path("plan.json"), "--explain"}), "--from");
}

TEST_F(PlanningCommands, PlanShowsAPlanThatWasMadeBefore) {
  ASSERT_EQ(Plan({"--pp", "2", "--out", Path("plan.json"), "--html", Path("made.html")}).code, 0);
  const Ended ended = penstock_.Run({"plan", "--from", Path("plan.json"), "--html", Path("shown.html")});
  EXPECT_EQ(ended.code, 0) << ended.errors;
  EXPECT_THAT(ended.output, HasSubstr("makespan"));
  EXPECT_EQ(penstock_.folder().Read("made.html"), penstock_.folder().Read("shown.html"));
  ExpectWrongRequest(Plan({"--from", Path("plan.json")}), "--from");
  ExpectWrongRequest(penstock_.Run({"plan", "--from", Path("absent.json")}), "absent.json");
}

TEST_F(PlanningCommands, TheSameRequestGivesTheSamePlan) {
  const auto plan = [&](const std::string& name) {
    EXPECT_EQ(Plan({"--pp", "2", "--out", Path(name)}).code, 0);
    Json planned = Parse(penstock_.folder().Read(name));
    planned["plan"].erase("planning_time_ns");
    return planned;
  };
  EXPECT_EQ(plan("a.json"), plan("b.json"));
}

TEST_F(PlanningCommands, MaxLengthCutsSamples) {
  ASSERT_EQ(Plan({"--max-length", "12", "--out", Path("plan.json")}).code, 0);
  const Json planned = Parse(penstock_.folder().Read("plan.json"));
  for (const Json& sample : planned["batch"]["samples"])
    EXPECT_LE(sample.value("input_tokens", 0) + sample.value("target_tokens", 0), 12);
}

TEST_F(PlanningCommands, SamplesBeyondTheProfileArePlannedOnRequestWithAWarning) {
  const std::string examples = PENSTOCK_EXAMPLES;
  const std::string lengths = Path("long.csv");
  penstock_.folder().Write("long.csv", "tokens\n300000\n20\n");
  std::vector<std::string> plan = {"plan",      "--profile", examples + "/gpt_7b.json",
                                   "--lengths", lengths,     "--rows",
                                   "0:2",       "--cp",      "8",
                                   "--pp",      "4",         "--memory-mb",
                                   "900000",    "--effort",  "fast"};
  ExpectWrongRequest(penstock_.Run(plan), "max_sequence_length");
  plan.emplace_back("--beyond-profile");
  ExpectWrongRequest(penstock_.Run(plan), "--max-length");
  plan.insert(plan.end(), {"--max-length", "300000", "--json"});
  const Ended ended = penstock_.Run(plan);
  ASSERT_EQ(ended.code, 0) << ended.errors;
  EXPECT_THAT(ended.errors, HasSubstr("warning: samples of up to 300000 tokens"));
  EXPECT_EQ(Parse(ended.output)["samples"], 2);
}

TEST_F(PlanningCommands, EveryPlanningFlagIsTaken) {
  const Ended ended = Plan({"--pp", "2", "--policy", "dynamic", "--layout", "packed", "--recompute", "full",
                            "--schedule", "1f1b", "--effort", "fast", "--layers-per-stage", "1,3",
                            "--stage-split", "even", "--memory-mb", "90"});
  EXPECT_EQ(ended.code, 0) << ended.errors;
  EXPECT_EQ(Plan({"--policy", "padding", "--micro-batch-size", "3"}).code, 0);
  EXPECT_EQ(Plan({"--policy", "packed", "--token-cap", "96"}).code, 0);
}

}  // namespace
}  // namespace penstock
