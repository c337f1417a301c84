// `penstock plan`, `compare` and `verify` as a user runs them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "common/files/files.h"
#include "common/process/sanitized.h"
#include "tests/integration/cli/penstock_process.h"

namespace penstock {
namespace {

using Json = nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

Json Parse(const std::string& text) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  EXPECT_FALSE(json.is_discarded()) << text;
  return json;
}

class PlanningCommands : public testing::Test {
 protected:
  Ended Plan(const std::vector<std::string>& more) {
    return penstock_.Run(penstock_.PlanningCommand("plan", more));
  }
  Ended Compare(const std::vector<std::string>& more) {
    return penstock_.Run(penstock_.PlanningCommand("compare", more));
  }
  std::string Path(const std::string& name) { return penstock_.folder().Path(name); }

  // Exit code 2, nothing on stdout, and an error that names what is wrong and where help is.
  void ExpectWrongRequest(const Ended& ended, const std::string& message) {
    EXPECT_EQ(ended.code, 2) << ended.errors;
    EXPECT_THAT(ended.output, IsEmpty());
    EXPECT_THAT(ended.errors, AllOf(HasSubstr(message), HasSubstr("--help")));
  }

  Penstock penstock_;
};

constexpr const char* kFields[] = {"policy",
                                   "expert_rows",
                                   "batch",
                                   "samples",
                                   "micro_batches",
                                   "planning_ms",
                                   "makespan_ms",
                                   "last_backward_ms",
                                   "gap",
                                   "padding_efficiency",
                                   "bubble",
                                   "bubble_by_cause",
                                   "peak_memory_mb",
                                   "spans",
                                   "schedule",
                                   "layers_per_stage",
                                   "strategy",
                                   "mesh",
                                   "share_weights",
                                   "lower_bound_ms",
                                   "feasible",
                                   "reason"};

TEST_F(PlanningCommands, PlanPrintsWhatTheIterationWillTake) {
  const Ended ended = Plan({"--pp", "2", "--dp", "2", "--stage-split", "even"});
  EXPECT_EQ(ended.code, 0) << ended.errors;
  EXPECT_THAT(ended.output, AllOf(HasSubstr("makespan"), HasSubstr("lower bound"), HasSubstr("peak MB")));
  EXPECT_THAT(ended.output,
              AllOf(HasSubstr("schedule"), HasSubstr("layers per stage    2,2"), HasSubstr("(fill ")));
  EXPECT_THAT(ended.errors, IsEmpty());
}

TEST_F(PlanningCommands, AnyNumberOfThreadsMakesTheSamePlan) {
  Json rows;
  for (const char* threads : {"1", "2", "7"}) {
    const Ended ended = Compare({"--pp", "2", "--policies", "dynamic", "--json", "--threads", threads});
    ASSERT_EQ(ended.code, 0) << ended.errors;
    Json row = Parse(ended.output)[0];
    row.erase("planning_ms");
    rows.push_back(row);
  }
  EXPECT_EQ(rows[1], rows[0]);
  EXPECT_EQ(rows[2], rows[0]);
  ExpectWrongRequest(Plan({"--threads", "0"}), "--threads");
}

TEST_F(PlanningCommands, PlanPrintsJson) {
  const Ended ended = Plan({"--pp", "2", "--json", "--policy", "packed", "--stage-split", "even"});
  ASSERT_EQ(ended.code, 0) << ended.errors;
  const Json row = Parse(ended.output);
  for (const char* field : kFields) EXPECT_TRUE(row.contains(field)) << field;
  EXPECT_EQ(row.size(), std::size(kFields));
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

TEST_F(PlanningCommands, CompareShowsWhatRanksWaitForInTheirGroups) {
  const Ended ended = Compare({"--cp", "2", "--effort", "fast"});
  EXPECT_EQ(ended.code, 0) << ended.errors;
  EXPECT_THAT(ended.output, HasSubstr("of it in groups"));
  EXPECT_THAT(Compare({"--effort", "fast"}).output, testing::Not(HasSubstr("of it in groups")));
}

TEST_F(PlanningCommands, PlanAndCompareDivideTheLayersAlike) {
  // Their lengths are unlike those that are assumed where none are handed over.
  const std::string examples = PENSTOCK_EXAMPLES;
  const std::vector<std::string> request = {"--profile", examples + "/gpt_7b.json",
                                            "--lengths", examples + "/lengths.csv",
                                            "--rows",    "0:16",
                                            "--pp",      "4",
                                            "--effort",  "fast",
                                            "--json"};
  std::vector<std::string> compare = {"compare", "--policies", "dynamic"};
  std::vector<std::string> plan = {"plan"};
  compare.insert(compare.end(), request.begin(), request.end());
  plan.insert(plan.end(), request.begin(), request.end());
  const Ended compared = penstock_.Run(compare);
  const Ended planned = penstock_.Run(plan);
  ASSERT_EQ(compared.code + planned.code, 0) << compared.errors << planned.errors;
  Json rows[] = {Parse(compared.output)[0], Parse(planned.output)};
  for (Json& row : rows) row.erase("planning_ms");
  EXPECT_EQ(rows[0], rows[1]);
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

TEST_F(PlanningCommands, AFileThatCannotBeWrittenIsNamedBeforePlanning) {
  std::filesystem::create_directory(Path("folder"));
  for (const char* flag : {"--out", "--html", "--trace"})
    ExpectWrongRequest(Plan({"--pp", "2", flag, Path("folder")}), std::string(flag) + ": '" + Path("folder"));
  EXPECT_FALSE(std::filesystem::exists(Path("folder.partial")));
}

TEST_F(PlanningCommands, APlanCanBeWrittenWhereTextIsPrinted) {
  const Ended ended = Plan({"--pp", "2", "--out", "/dev/stdout"});
  ASSERT_EQ(ended.code, 0) << ended.errors;
  const size_t summary = ended.output.find("\npolicy ");
  ASSERT_NE(summary, std::string::npos) << ended.output;
  EXPECT_TRUE(Parse(ended.output.substr(0, summary)).contains("plan"));
}

TEST_F(PlanningCommands, VerifyAcceptsWhatPlanWrote) {
  ASSERT_EQ(Plan({"--pp", "2", "--dp", "2", "--out", Path("plan.json")}).code, 0);
  const Ended ended = penstock_.Run({"verify", Path("plan.json")});
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("valid: all rules hold for 4 ranks and 24 samples"));
}

TEST_F(PlanningCommands, VerifyNamesTheRuleAndTheInstructionOfADamagedPlan) {
  ASSERT_EQ(Plan({"--pp", "2", "--out", Path("plan.json")}).code, 0);
  Json planned = Parse(penstock_.folder().Read("plan.json"));
  for (Json& instruction : planned["plan"]["programs"][0]["instructions"])
    if (instruction["op"] == "OP_SEND") instruction["transfer"]["bytes"] = "17";
  const std::string path = penstock_.folder().Write("damaged.json", planned.dump());
  const Ended text = penstock_.Run({"verify", path});
  EXPECT_EQ(text.code, 1);
  EXPECT_THAT(text.output,
              AllOf(HasSubstr("rule 2 (transfers): rank 0, instruction"), HasSubstr("its bytes are 17")));
  const Ended json = penstock_.Run({"verify", path, "--json"});
  EXPECT_EQ(json.code, 1);
  const Json violations = Parse(json.output);
  ASSERT_FALSE(violations.empty());
  EXPECT_EQ(violations[0]["rule"], 2);
  EXPECT_EQ(violations[0]["name"], "transfers");
  EXPECT_EQ(violations[0]["rank"], 0);
}

TEST_F(PlanningCommands, VerifyNoticesAnEditedPrediction) {
  ASSERT_EQ(Plan({"--pp", "2", "--out", Path("plan.json")}).code, 0);
  Json planned = Parse(penstock_.folder().Read("plan.json"));
  planned["plan"]["predicted"]["makespan_ns"] = "17";
  const Ended ended = penstock_.Run({"verify", penstock_.folder().Write("edited.json", planned.dump())});
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.output, HasSubstr("content_hash"));
}

TEST_F(PlanningCommands, VerifyComparesAPlanWithItsProfileAndItsLengths) {
  const std::string plan = Path("plan.json");
  ASSERT_EQ(Plan({"--pp", "2", "--dp", "2", "--out", plan}).code, 0);
  const std::string profile = penstock_.WriteProfile();
  const std::string lengths = penstock_.WriteLengths(100);
  const Ended valid = penstock_.Run({"verify", plan, "--profile", profile, "--lengths", lengths});
  EXPECT_EQ(valid.code, 0) << valid.output << valid.errors;
  const Ended rows = penstock_.Run({"verify", plan, "--lengths", lengths, "--rows", "1:25"});
  EXPECT_EQ(rows.code, 1);
  EXPECT_THAT(rows.output, HasSubstr("rule 10 (samples): batch.samples[0] is sample_id 0"));
  const Ended cut = penstock_.Run({"verify", plan, "--lengths", lengths, "--max-length", "3"});
  EXPECT_EQ(cut.code, 1);
  EXPECT_THAT(cut.output, HasSubstr("rule 10 (samples)"));
  Json slower = Parse(penstock_.folder().Read("profile.json"));
  slower["profile"]["cluster"]["intra_node_latency_ns"] = "123456";
  slower["profile"]["cluster"]["intraNodeLatencyNs"] = "123456";
  slower["profile"]["cluster"].erase(slower["profile"]["cluster"].contains("intraNodeBytesPerSecond")
                                         ? "intra_node_latency_ns"
                                         : "intraNodeLatencyNs");
  const Ended costs =
      penstock_.Run({"verify", plan, "--profile", penstock_.folder().Write("slower.json", slower.dump())});
  EXPECT_EQ(costs.code, 1) << costs.errors;
  EXPECT_THAT(costs.output,
              AllOf(HasSubstr("rule 9 (costs): rank 0, instruction"), HasSubstr("expected_duration_ns is")));
  ExpectWrongRequest(penstock_.Run({"verify", plan, "--rows", "0:3"}), "need --lengths");
  ExpectWrongRequest(penstock_.Run({"verify", plan, "--profile", Path("absent.json")}), "absent.json");
}

TEST_F(PlanningCommands, VerifyRefusesWhatIsNoPlan) {
  ExpectWrongRequest(penstock_.Run({"verify", Path("absent.json")}), "absent.json");
  ExpectWrongRequest(penstock_.Run({"verify", penstock_.folder().Write("a.json", "{\"x\": 1}")}),
                     "is not a plan file");
  ExpectWrongRequest(penstock_.Run({"verify", penstock_.folder().Write("b.json", "{}")}),
                     "lacks \"batch\" or \"plan\"");
}

TEST_F(PlanningCommands, VerifyShowsNoRawBytesOfAFile) {
  const std::string path = penstock_.folder().Write("raw.json", "{\"batch\": \x1b[31m\xff}");
  const Ended ended = penstock_.Run({"verify", path});
  EXPECT_EQ(ended.code, 2);
  EXPECT_EQ(ended.errors.find('\x1b'), std::string::npos) << ended.errors;
  EXPECT_EQ(ended.errors.find('\xff'), std::string::npos) << ended.errors;
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

TEST_F(PlanningCommands, CompareShowsMeansOfEachPolicy) {
  const Ended ended = Compare({"--pp", "2", "--policies", "padding,packed,dynamic", "--batches", "4"});
  EXPECT_EQ(ended.code, 0) << ended.errors;
  EXPECT_THAT(ended.output,
              AllOf(HasSubstr("padding"), HasSubstr("packed"), HasSubstr("dynamic"), HasSubstr("4/4")));
}

TEST_F(PlanningCommands, ComparePrintsARowForEachPolicyAndBatch) {
  const Ended ended = Compare({"--policies", "padding,dynamic", "--batches", "2", "--json"});
  ASSERT_EQ(ended.code, 0) << ended.errors;
  const Json rows = Parse(ended.output);
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0]["policy"], "padding");
  EXPECT_EQ(rows[1]["batch"], 1);
  EXPECT_EQ(rows[2]["policy"], "dynamic");
  for (const Json& row : rows)
    for (const char* field : kFields) EXPECT_TRUE(row.contains(field)) << field;
}

TEST_F(PlanningCommands, ComparePlansEveryPolicyThatThereIs) {
  const Ended ended =
      Compare({"--policies", "padding,concatenated,packed,token_budget,dynamic", "--batches", "1", "--json"});
  EXPECT_EQ(ended.code, 0) << ended.errors;
  const Json rows = Parse(ended.output);
  ASSERT_EQ(rows.size(), 5);
  for (const Json& row : rows) EXPECT_EQ(row["feasible"], true) << row;
  EXPECT_EQ(rows[1]["policy"], "concatenated");
  EXPECT_LT(rows[1]["padding_efficiency"], 1.0);
}

TEST_F(PlanningCommands, VerifyAcceptsConcatenatedRows) {
  ASSERT_EQ(Plan({"--policy", "concatenated", "--out", Path("plan.json")}).code, 0);
  const Ended ended = penstock_.Run({"verify", Path("plan.json")});
  EXPECT_EQ(ended.code, 0) << ended.output << ended.errors;
}

TEST_F(PlanningCommands, CompareSaysWhyABatchHasNoPlan) {
  const Ended ended =
      Compare({"--policies", "dynamic", "--recompute", "none", "--memory-mb", "4.5", "--json"});
  EXPECT_EQ(ended.code, 1) << ended.output;
  const Json rows = Parse(ended.output);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0]["feasible"], false);
  EXPECT_TRUE(rows[0]["makespan_ms"].is_null());
  EXPECT_FALSE(rows[0]["reason"].get<std::string>().empty());
}

// The number behind a flag of the message.
std::string ValueAfter(const std::string& message, const std::string& flag) {
  const size_t place = message.find(flag + " ");
  EXPECT_NE(place, std::string::npos) << message;
  if (place == std::string::npos) return "";
  const size_t begin = place + flag.size() + 1;
  return message.substr(begin, message.find_first_not_of("0123456789.", begin) - begin);
}

TEST_F(PlanningCommands, ASampleThatDoesNotFitNamesFlagsThatMakeItFit) {
  const auto plan = [&](const std::string& memory_mb, const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"--recompute", "none", "--memory-mb", memory_mb};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Plan(arguments);
  };
  const Ended ended = plan("4.65", {});
  ExpectWrongRequest(ended, "tokens do not fit on stage 0: needs ");
  EXPECT_THAT(ended.errors, AllOf(HasSubstr("limit 4650000"), HasSubstr("--recompute full")));
  EXPECT_EQ(Plan({"--recompute", "full", "--memory-mb", "4.65"}).code, 0);
  const std::string pipeline = ValueAfter(ended.errors, "--pp");
  EXPECT_EQ(plan("4.65", {"--pp", pipeline}).code, 0);
  const int length = std::stoi(ValueAfter(ended.errors, "--max-length"));
  EXPECT_EQ(plan("4.65", {"--max-length", std::to_string(length)}).code, 0);
  EXPECT_EQ(plan("4.65", {"--max-length", std::to_string(length + 1)}).code, 2);
  const int memory = std::stoi(ValueAfter(ended.errors, "--memory-mb"));
  EXPECT_EQ(plan(std::to_string(memory), {}).code, 0);
}

TEST_F(PlanningCommands, EveryPlanningFlagIsTaken) {
  const Ended ended = Plan({"--pp", "2", "--policy", "dynamic", "--layout", "packed", "--recompute", "full",
                            "--schedule", "1f1b", "--effort", "fast", "--layers-per-stage", "1,3",
                            "--stage-split", "even", "--memory-mb", "90"});
  EXPECT_EQ(ended.code, 0) << ended.errors;
  EXPECT_EQ(Plan({"--policy", "padding", "--micro-batch-size", "3"}).code, 0);
  EXPECT_EQ(Plan({"--policy", "packed", "--token-cap", "96"}).code, 0);
}

TEST_F(PlanningCommands, WrongFlagsAreNamed) {
  ExpectWrongRequest(penstock_.Run({"plan"}), "--profile is required");
  ExpectWrongRequest(Plan({"--policy", "magic"}), "--policy");
  ExpectWrongRequest(Plan({"--pp", "0"}), "--pp");
  ExpectWrongRequest(Plan({"--no-such-flag"}), "--no-such-flag");
  ExpectWrongRequest(Plan({"--max-input", "5"}),
                     "--max-input and --max-target are for encoder-decoder models");
  ExpectWrongRequest(Plan({"--pp", "9"}), "--pp: ");
  ExpectWrongRequest(Plan({"--schedule", "magic"}), "--schedule");
  ExpectWrongRequest(Plan({"--stage-split", "magic"}), "--stage-split");
  ExpectWrongRequest(Plan({"--pp", "2", "--rank-of-stage", "0,1,1,0"}),
                     "--rank-of-stage: needs --layers-per-stage");
  ExpectWrongRequest(Plan({"--memory-mb", "1"}), "limit 1000000; this fits: --memory-mb ");
  ExpectWrongRequest(Compare({"--batches", "5"}), "has 100: give smaller --rows (or --batches)");
  ExpectWrongRequest(penstock_.Run({}), "subcommand");
  ExpectWrongRequest(penstock_.Run({"frobnicate"}), "there is no command or flag 'frobnicate'");
  ExpectWrongRequest(penstock_.Run({"dataset", "frobnicate"}), "there is no command or flag 'frobnicate'");
}

TEST_F(PlanningCommands, WrongFilesAreNamed) {
  const std::string lengths = penstock_.WriteLengths(30), profile = penstock_.WriteProfile();
  const auto plan = [&](const std::string& p, const std::string& l, const std::string& rows) {
    return penstock_.Run({"plan", "--profile", p, "--lengths", l, "--rows", rows});
  };
  ExpectWrongRequest(plan(Path("absent.json"), lengths, "0:4"), "absent.json");
  ExpectWrongRequest(plan(penstock_.folder().Write("bad.json", "{"), lengths, "0:4"), "--profile '");
  ExpectWrongRequest(plan(profile, Path("absent.csv"), "0:4"), "absent.csv");
  ExpectWrongRequest(plan(profile, lengths, "4:0"), "--rows is '4:0'");
  ExpectWrongRequest(plan(profile, lengths, "0:31"), "has 30");
  ExpectWrongRequest(plan(profile, penstock_.folder().Write("bad.csv", "tokens\n0\n"), "0:1"),
                     "batch.samples[0]");
}

TEST_F(PlanningCommands, AFileThatCannotBeWrittenFailsTheWork) {
  const Ended ended = Plan({"--out", "/proc/penstock/plan.json"});
  EXPECT_NE(ended.code, 0);
  EXPECT_THAT(ended.errors, HasSubstr("/proc/penstock"));
}

TEST_F(PlanningCommands, APlannerThatIsNotThereFailsTheWork) {
  const Ended ended = Plan({"--planner", "127.0.0.1:1"});
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.errors, HasSubstr("--planner 127.0.0.1:1"));
}

TEST_F(PlanningCommands, ProfilesAreShownAndCompared) {
  const std::string profile = penstock_.WriteProfile();
  const Ended shown = penstock_.Run({"profile", "show", profile});
  EXPECT_EQ(shown.code, 0) << shown.errors;
  EXPECT_THAT(shown.output, AllOf(HasSubstr("layer, forward, ms"), HasSubstr("head, backward, ms")));
  const Ended compared = penstock_.Run({"profile", "compare", profile, profile, "--json"});
  EXPECT_EQ(compared.code, 0) << compared.errors;
  const Json ratios = Parse(compared.output)["figures"]["layer, forward"];
  EXPECT_FALSE(ratios.empty());
  for (const Json& ratio : ratios) EXPECT_EQ(ratio, 1);
  ExpectWrongRequest(penstock_.Run({"profile", "show", penstock_.WriteLengths(3)}), "lengths.csv");
}

// A profile that names slow ranks: they are shown, planned for, and proven.
TEST_F(PlanningCommands, AProfileMayNameSlowRanks) {
  Json profile = Parse(ReadFile(penstock_.WriteProfile()).value_or(""));
  profile["profile"]["slow_ranks"] = {{{"rank", 1}, {"factor", 1.5}}};
  const std::string file = penstock_.folder().Write("slow.json", profile.dump());
  EXPECT_THAT(penstock_.Run({"profile", "show", file}).output,
              HasSubstr("slow ranks    1 (1.5 times as long)"));
  const auto plan_with = [&](const std::string& with, const std::string& out) {
    return penstock_.Run({"plan", "--profile", with, "--lengths", penstock_.WriteLengths(100), "--rows",
                          "0:24", "--dp", "2", "--out", out});
  };
  const std::string plan = Path("slow-plan.json");
  const Ended planned = plan_with(file, plan);
  EXPECT_EQ(planned.code, 0) << planned.errors;
  EXPECT_EQ(penstock_.Run({"verify", plan, "--profile", file}).code, 0);
  profile["profile"]["slow_ranks"][0]["rank"] = 9;
  ExpectWrongRequest(plan_with(penstock_.folder().Write("nobody.json", profile.dump()), plan),
                     "slow_ranks: rank 9");
}

// A rank with less memory than the others: its program keeps to it, and so does what is proven.
TEST_F(PlanningCommands, SingleRanksMayHaveLessMemory) {
  const std::string file = Path("rank-memory.json");
  const auto plan_with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"--dp", "2", "--out", file};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Plan(arguments);
  };
  ASSERT_EQ(plan_with({}).code, 0);
  const Json roomy = Parse(ReadFile(file).value_or(""))["plan"];
  const auto bytes_of = [](const Json& value) { return std::stod(value.get<std::string>()); };
  const double parameters = bytes_of(roomy["programs"][1]["static_memory_bytes"]);
  const double peak = bytes_of(roomy["predicted"]["ranks"][1]["peak_memory_bytes"]);
  const int64_t limit = std::llround(parameters + 0.6 * (peak - parameters));
  const Ended planned =
      plan_with({"--rank-memory-mb", absl::StrFormat("1:%.6f", static_cast<double>(limit) / 1e6)});
  ASSERT_EQ(planned.code, 0) << planned.errors;
  const Json plan = Parse(ReadFile(file).value_or(""))["plan"];
  EXPECT_EQ(bytes_of(plan["programs"][1]["memory_limit_bytes"]), limit);
  EXPECT_EQ(plan["programs"][0]["memory_limit_bytes"], roomy["programs"][0]["memory_limit_bytes"]);
  EXPECT_LE(bytes_of(plan["predicted"]["ranks"][1]["peak_memory_bytes"]), limit);
  EXPECT_EQ(penstock_.Run({"verify", file, "--profile", penstock_.WriteProfile()}).code, 0);
  ExpectWrongRequest(plan_with({"--rank-memory-mb", "2:100"}), "--rank-memory-mb: rank 2;");
  ExpectWrongRequest(plan_with({"--rank-memory-mb", "1:0.001"}), "limit 1000 of rank 1");
}

// A profile that names slow links: they are shown, planned for, and proven.
TEST_F(PlanningCommands, AProfileMayNameSlowLinks) {
  Json profile = Parse(ReadFile(penstock_.WriteProfile()).value_or(""));
  profile["profile"]["slow_links"] = {{{"from", 0}, {"to", 1}, {"factor", 20}}};
  const std::string file = penstock_.folder().Write("slow-link.json", profile.dump());
  EXPECT_THAT(penstock_.Run({"profile", "show", file}).output,
              HasSubstr("slow links    0 to 1 (20 times as long)"));
  const std::string plan = Path("slow-link-plan.json");
  const Ended planned = penstock_.Run({"plan", "--profile", file, "--lengths", penstock_.WriteLengths(100),
                                       "--rows", "0:24", "--pp", "2", "--dp", "2", "--out", plan});
  EXPECT_EQ(planned.code, 0) << planned.errors;
  EXPECT_EQ(penstock_.Run({"verify", plan, "--profile", file}).code, 0);
}

// A profile that says of noise: it is shown, compared, planned for, explained and proven.
TEST_F(PlanningCommands, AProfileMaySayOfNoise) {
  const std::string exact = penstock_.WriteProfile();
  Json profile = Parse(ReadFile(exact).value_or(""));
  profile["profile"]["pass_noise"] = 0.2;
  const std::string file = penstock_.folder().Write("noisy.json", profile.dump());
  EXPECT_THAT(penstock_.Run({"profile", "show", file}).output,
              HasSubstr("noise         passes differ by 20 % from what is foretold"));
  EXPECT_THAT(penstock_.Run({"profile", "compare", exact, file}).output,
              HasSubstr("noise         20 % by 0 %"));
  const std::string plan = Path("noisy-plan.json");
  const Ended planned =
      penstock_.Run({"plan", "--profile", file, "--lengths", penstock_.WriteLengths(100), "--rows", "0:24",
                     "--pp", "2", "--dp", "2", "--out", plan, "--explain"});
  EXPECT_EQ(planned.code, 0) << planned.errors;
  EXPECT_THAT(planned.output, HasSubstr("the plan that is fastest without noise takes"));
  EXPECT_EQ(penstock_.Run({"verify", plan, "--profile", file}).code, 0);
}

TEST_F(PlanningCommands, HelpIsOnEverythingAndShowsExamples) {
  for (const char* command : {"plan", "compare", "verify", "dataset"}) {
    const Ended ended = penstock_.Run({command, "--help"});
    EXPECT_EQ(ended.code, 0);
    EXPECT_THAT(ended.output, HasSubstr(std::string("penstock ") + command));
  }
  EXPECT_THAT(penstock_.Run({"--help"}).output, AllOf(HasSubstr("compare"), HasSubstr("Exit status")));
  EXPECT_THAT(penstock_.Run({"--version"}).output, HasSubstr("penstock 0."));
}

}  // namespace
}  // namespace penstock
