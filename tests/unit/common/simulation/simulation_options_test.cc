#include "common/simulation/simulation_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "common/simulation/simulation_flags.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

// The options that a command line of these flags asks for.
SimulationOptions Parse(std::vector<std::string> arguments) {
  CLI::App app;
  SimulationOptions options;
  AddSimulationFlags(app, options);
  std::reverse(arguments.begin(), arguments.end());  // as CLI11 takes them
  app.parse(arguments);
  return options;
}

TEST(SimulationOptionsTest, FlagsSayAllOfThem) {
  const SimulationOptions options =
      Parse({"--time-scale", "0.25", "--noise", "0.05", "--noise-seed", "7", "--slow-rank", "3:1.5",
             "--slow-rank", "4:2", "--slow-link", "2-3:4", "--stall", "5:10:2.5", "--host-stall", "6:0.01"});
  EXPECT_EQ(options.time_scale, 0.25);
  EXPECT_EQ(options.noise, 0.05);
  EXPECT_EQ(options.noise_seed, 7);
  ASSERT_EQ(options.slow_ranks.size(), 2u);
  EXPECT_EQ(options.slow_ranks[1].rank, 4);
  EXPECT_EQ(options.slow_ranks[1].factor, 2);
  ASSERT_EQ(options.slow_links.size(), 1u);
  EXPECT_EQ(std::pair(options.slow_links[0].a, options.slow_links[0].b), std::pair(2u, 3u));
  EXPECT_EQ(options.slow_links[0].factor, 4);
  ASSERT_EQ(options.stalls.size(), 1u);
  EXPECT_EQ(options.stalls[0].iteration, 10);
  EXPECT_EQ(options.stalls[0].seconds, 2.5);
  ASSERT_EQ(options.host_stalls.size(), 1u);
  EXPECT_EQ(options.host_stalls[0].rank, 6);
  EXPECT_EQ(options.host_stalls[0].seconds, 0.01);
}

TEST(SimulationOptionsTest, ArgumentsForAWorkerSayTheSame) {
  const SimulationOptions options = {.time_scale = 0.1,
                                     .noise = 1.0 / 3,
                                     .noise_seed = 9,
                                     .slow_ranks = {{1, 1.1}},
                                     .slow_links = {{0, 2, 3.7}},
                                     .stalls = {{2, 3, 0.7}},
                                     .host_stalls = {{3, 0.1}}};
  const SimulationOptions again = Parse(SimulationArguments(options));
  EXPECT_EQ(SimulationArguments(again), SimulationArguments(options));
  EXPECT_EQ(again.noise, options.noise);
  EXPECT_EQ(again.stalls[0].seconds, 0.7);
}

TEST(SimulationOptionsTest, FlagsOfAWrongFormSayTheRightOne) {
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"--slow-rank", "3"}, {"--slow-rank", "a:2"}, {"--slow-link", "1:2"}, {"--slow-link", "1-x:2"},
      {"--stall", "1:2"},   {"--stall", "1:2:3:4"}, {"--host-stall", "1"}};
  for (const auto& [flag, value] : wrong) {
    try {
      Parse({flag, value});
      FAIL() << flag << " " << value;
    } catch (const CLI::ParseError& error) {
      EXPECT_THAT(error.what(), HasSubstr(flag + " '" + value + "': give RANK"));
    }
  }
}

TEST(SimulationOptionsTest, ValuesOutOfRangeAndUnknownRanksNameTheFlag) {
  EXPECT_TRUE(CheckSimulation({}, 1).ok());
  const std::vector<std::pair<SimulationOptions, std::string>> wrong = {
      {{.time_scale = -1}, "--time-scale"},
      {{.noise = 2}, "--noise"},
      {{.slow_ranks = {{4, 2}}}, "--slow-rank: there is no rank 4"},
      {{.slow_ranks = {{0, -1}}}, "--slow-rank: factor"},
      {{.slow_links = {{0, 4, 2}}}, "--slow-link: there is no rank 4"},
      {{.slow_links = {{1, 1, 2}}}, "--slow-link: 1-1 is no link"},
      {{.stalls = {{9, 0, 1}}}, "--stall: there is no rank 9"},
      {{.stalls = {{0, 0, -1}}}, "--stall: seconds"},
      {{.host_stalls = {{9, 1}}}, "--host-stall: there is no rank 9"},
      {{.host_stalls = {{0, -1}}}, "--host-stall: seconds"}};
  for (const auto& [options, message] : wrong) {
    const absl::Status status = CheckSimulation(options, 4);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << message;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  }
}

}  // namespace
}  // namespace penstock
