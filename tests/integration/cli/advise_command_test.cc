// `penstock advise` as a user runs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/integration/cli/penstock_process.h"

namespace penstock {
namespace {

using Json = nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

class AdviseCommand : public testing::Test {
 protected:
  Ended Advise(const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"advise", "--profile", penstock_.WriteProfile(), "--lengths",
                                          penstock_.WriteLengths(100)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return penstock_.Run(arguments);
  }

  Penstock penstock_;
};

TEST_F(AdviseCommand, RanksWaysToTrain) {
  const Ended ended = Advise({"--gpus", "4", "--global-batch", "24", "--top", "3"});
  EXPECT_EQ(ended.code, 0) << ended.errors;
  EXPECT_THAT(ended.errors, IsEmpty());
  EXPECT_THAT(ended.output, AllOf(HasSubstr("tokens/s"), HasSubstr("Means over 4 batches"),
                                  HasSubstr("penstock plan --pp ")));
}

TEST_F(AdviseCommand, TheFirstAdviceIsWhatPlanningWithItsFlagsGives) {
  const Ended ended =
      Advise({"--gpus", "4", "--global-batch", "24", "--rows", "0:24", "--batches", "1", "--json"});
  ASSERT_EQ(ended.code, 0) << ended.errors;
  const Json json = Json::parse(ended.output, nullptr, /*allow_exceptions=*/false);
  ASSERT_FALSE(json.is_discarded());
  const Json& first = json["advice"][0];
  std::vector<std::string> flags = {"--json"};
  std::istringstream words(first["flags"].get<std::string>());
  for (std::string word; words >> word;) flags.push_back(word);
  const Ended plan = penstock_.Run(penstock_.PlanningCommand("plan", flags));
  ASSERT_EQ(plan.code, 0) << plan.errors;
  const Json summary = Json::parse(plan.output, nullptr, /*allow_exceptions=*/false);
  EXPECT_DOUBLE_EQ(summary["makespan_ms"].get<double>(), first["makespan_ms"].get<double>());
  EXPECT_DOUBLE_EQ(summary["peak_memory_mb"].get<double>(), first["peak_memory_mb"].get<double>());
  for (size_t i = 1; i < json["advice"].size(); ++i) {
    EXPECT_LE(json["advice"][i]["tokens_per_second"], json["advice"][i - 1]["tokens_per_second"]);
  }
}

TEST_F(AdviseCommand, TheSameRequestGivesTheSameAnswer) {
  const std::vector<std::string> request = {"--gpus", "8", "--global-batch", "24", "--json"};
  EXPECT_EQ(Advise(request).output, Advise(request).output);
}

TEST_F(AdviseCommand, WrongFlagsAreNamed) {
  const auto expect = [&](const std::vector<std::string>& more, const std::string& message) {
    const Ended ended = Advise(more);
    EXPECT_EQ(ended.code, 2) << ended.errors;
    EXPECT_THAT(ended.errors, HasSubstr(message));
  };
  expect({"--global-batch", "24"}, "--gpus is required");
  expect({"--gpus", "0", "--global-batch", "24"}, "--gpus");
  expect({"--gpus", "4", "--global-batch", "101"}, "--global-batch 101");
  expect({"--gpus", "7919", "--global-batch", "24"}, "--gpus 7919");
  expect({"--gpus", "4", "--global-batch", "24", "--policies", "magic"}, "--policies");
  expect({"--gpus", "4", "--global-batch", "24", "--rows", "5:2"}, "--rows");
}

TEST_F(AdviseCommand, SaysWhyNothingFits) {
  const Ended ended = Advise({"--gpus", "4", "--global-batch", "24", "--memory-mb", "0.5"});
  EXPECT_NE(ended.code, 0);
  EXPECT_THAT(ended.output, HasSubstr("Do not fit:"));
  EXPECT_THAT(ended.errors, HasSubstr("no way to train fits on 4 GPUs"));
}

TEST_F(AdviseCommand, WithoutARunItSaysWhatItNeeds) {
  const Ended ended = penstock_.Run({"advise", "--gpus", "4", "--global-batch", "24"});
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.errors, AllOf(HasSubstr("--profile is required"), HasSubstr("--from-run")));
}

TEST_F(AdviseCommand, OfARunItTakesNothingThatTheRunHas) {
  const Ended ended = penstock_.Run({"advise", "--from-run", "nowhere", "--gpus", "4"});
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.errors, HasSubstr("--gpus: a run"));
  const Ended both = penstock_.Run({"advise", "--from-run", "nowhere", "--job", "mix"});
  EXPECT_EQ(both.code, 2);
  EXPECT_THAT(both.errors, HasSubstr("--from-run and --job"));
}

TEST_F(AdviseCommand, AFolderThatIsNoRunIsNamed) {
  const Ended ended = penstock_.Run({"advise", "--from-run", penstock_.folder().path()});
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.errors, AllOf(HasSubstr("--from-run"), HasSubstr("measured.json")));
  const Ended job = penstock_.Run({"advise", "--job", "mix"});
  EXPECT_EQ(job.code, 2);
  EXPECT_THAT(job.errors, HasSubstr("--job needs --planner"));
}

}  // namespace
}  // namespace penstock
