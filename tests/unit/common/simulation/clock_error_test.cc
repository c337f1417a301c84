#include "common/simulation/clock_error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <vector>

namespace penstock {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::vector<ClockError> ClockErrorsOf(std::vector<std::string> arguments) {
  CLI::App app;
  std::vector<ClockError> errors;
  AddClockErrorFlag(app, errors);
  std::reverse(arguments.begin(), arguments.end());  // as CLI11 takes them
  app.parse(arguments);
  return errors;
}

TEST(ClockErrorTest, FlagsAndArgumentsForAWorkerSayTheSame) {
  const std::vector<ClockError> errors =
      ClockErrorsOf({"--clock-error", "3:-0.7:100", "--clock-error", "1:0.25:-12.5"});
  ASSERT_EQ(errors.size(), 2);
  EXPECT_EQ(errors[0].rank, 3);
  EXPECT_EQ(errors[0].seconds, -0.7);
  EXPECT_EQ(errors[0].drift_ppm, 100);
  EXPECT_EQ(errors[1].drift_ppm, -12.5);
  EXPECT_EQ(ClockErrorArguments(ClockErrorsOf(ClockErrorArguments(errors))), ClockErrorArguments(errors));
}

TEST(ClockErrorTest, WhatIsNoClockNamesTheFlagAndItsForm) {
  for (const char* text : {"", "1", "1:2", "1:2:3:4", "x:1:1", "-1:1:1", "1:nan:0", "1:1e6:0", "1:0:2e4"})
    EXPECT_THAT(std::string(ParseClockError(text).status().message()), HasSubstr("give RANK:SECONDS:PPM"))
        << text;
}

TEST(ClockErrorTest, RanksAreThoseOfTheJob) {
  EXPECT_TRUE(CheckClockErrors({{.rank = 3}}, 4).ok());
  EXPECT_THAT(std::string(CheckClockErrors({{.rank = 4}}, 4).message()),
              HasSubstr("--clock-error: there is no rank 4"));
}

TEST(ClockErrorTest, NoHelpNamesTheFlag) {
  CLI::App app;
  std::vector<ClockError> errors;
  AddClockErrorFlag(app, errors);
  EXPECT_THAT(app.help(), Not(HasSubstr("clock")));
}

}  // namespace
}  // namespace penstock
