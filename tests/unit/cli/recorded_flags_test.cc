#include "planner/cli/recorded_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "planner/cli/choice_flag.h"

namespace penstock::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

enum class Side { kLeft, kRight };

// A command with a flag of each kind.
struct Command {
  Command() {
    app.option_defaults()->take_last();
    app.add_option("--lr", rate)->check(CLI::Range(0.0, 1.0));
    app.add_flag("--shard", shard);
    app.add_option("--slow", slow)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    app.add_option("--layers", layers)->delimiter(',')->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    AddChoice(app, "--side", side, Sides(), "which");
  }
  static const Names<Side>& Sides() {
    static const auto* sides = new Names<Side>{{"left", Side::kLeft}, {"right", Side::kRight}};
    return *sides;
  }
  void Parse(std::vector<std::string> arguments) {
    std::reverse(arguments.begin(), arguments.end());
    app.parse(arguments);
  }

  CLI::App app;
  double rate = 0.5;
  bool shard = false;
  std::vector<std::string> slow;
  std::vector<int> layers;
  Side side = Side::kLeft;
};

TEST(RecordedFlags, AreGivenAgainAsTheyWere) {
  Command first;
  first.Parse(
      {"--lr", "0.25", "--shard", "--slow", "1:2", "--slow", "3:4", "--layers", "1,2,3", "--side", "right"});
  const FlagValues given = GivenFlags(first.app);
  EXPECT_THAT(given.at("--lr"), ElementsAre("0.25"));
  EXPECT_EQ(given.size(), 5u);

  Command second;
  second.Parse({});
  ASSERT_TRUE(GiveFlags(given, second.app).ok());
  EXPECT_EQ(second.rate, 0.25);
  EXPECT_TRUE(second.shard);
  EXPECT_THAT(second.slow, ElementsAre("1:2", "3:4"));
  EXPECT_THAT(second.layers, ElementsAre(1, 2, 3));
  EXPECT_EQ(second.side, Side::kRight);
  EXPECT_EQ(GivenFlags(second.app), given) << "they can be kept once more";
}

TEST(RecordedFlags, WhatTheCommandLineSaysCounts) {
  Command command;
  command.Parse({"--lr", "0.75", "--side", "left"});
  ASSERT_TRUE(
      GiveFlags({{"--lr", {"0.25"}}, {"--side", {"right"}}, {"--shard", {"true"}}}, command.app).ok());
  EXPECT_EQ(command.rate, 0.75);
  EXPECT_EQ(command.side, Side::kLeft);
  EXPECT_TRUE(command.shard);
}

TEST(RecordedFlags, WhatTheCommandDoesNotTakeIsNamed) {
  for (const FlagValues& flags : {FlagValues{{"--gone", {"1"}}}, FlagValues{{"--lr", {"7"}}},
                                  FlagValues{{"--lr", {"x"}}}, FlagValues{{"--side", {"up"}}}}) {
    Command command;
    command.Parse({});
    const absl::Status status = GiveFlags(flags, command.app);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(flags.begin()->first));
  }
}

}  // namespace
}  // namespace penstock::cli
