// What `penstock plan`, `compare` and `verify` refuse, and how they say it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/integration/cli/planning_commands.h"

namespace penstock {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST_F(PlanningCommands, AFileThatCannotBeWrittenIsNamedBeforePlanning) {
  std::filesystem::create_directory(Path("folder"));
  for (const char* flag : {"--out", "--html", "--trace"})
    ExpectWrongRequest(Plan({"--pp", "2", flag, Path("folder")}), std::string(flag) + ": '" + Path("folder"));
  EXPECT_FALSE(std::filesystem::exists(Path("folder.partial")));
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
