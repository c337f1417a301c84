// `penstock verify` as a user runs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/integration/cli/planning_commands.h"

namespace penstock {
namespace {

using testing::AllOf;
using testing::HasSubstr;

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

TEST_F(PlanningCommands, VerifyAcceptsConcatenatedRows) {
  ASSERT_EQ(Plan({"--policy", "concatenated", "--out", Path("plan.json")}).code, 0);
  const Ended ended = penstock_.Run({"verify", Path("plan.json")});
  EXPECT_EQ(ended.code, 0) << ended.output << ended.errors;
}

}  // namespace
}  // namespace penstock
