#include "common/logging/logging.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

namespace penstock {
namespace {

const absl::Time kTime = absl::FromUnixMillis(1'763'721'360'123);

std::string Text(const std::vector<LogField>& fields) {
  return FormatLogLine(LogFormat::kText, kTime, LogLevel::kInfo, "job registered", fields);
}

nlohmann::json Json(const std::vector<LogField>& fields) {
  return nlohmann::json::parse(
      FormatLogLine(LogFormat::kJson, kTime, LogLevel::kWarning, "job registered", fields));
}

TEST(LoggingTest, ATextLineHasTimeLevelMessageAndFields) {
  EXPECT_EQ(Text({{"job", "gpt"}, {"ranks", 4}, {"ratio", 0.5}, {"ok", true}}),
            "2025-11-21T10:36:00.123Z INFO job registered job=gpt ranks=4 ratio=0.5 ok=true");
}

TEST(LoggingTest, TextThatCouldBeMisreadIsQuoted) {
  EXPECT_THAT(Text({{"reason", "a b"}}), testing::EndsWith(" reason=\"a b\""));
  EXPECT_THAT(Text({{"reason", ""}}), testing::EndsWith(" reason=\"\""));
  EXPECT_THAT(Text({{"reason", "it's \"x\"=1"}}), testing::EndsWith(" reason=\"it's \\\"x\\\"=1\""));
}

TEST(LoggingTest, ALineStaysOneLine) {
  EXPECT_THAT(Text({{"reason", "a\nb"}}), testing::EndsWith(" reason=\"a\\nb\""));
  EXPECT_EQ(FormatLogLine(LogFormat::kJson, kTime, LogLevel::kInfo, "m", {{"k", "a\nb"}}).find('\n'),
            std::string::npos);
}

TEST(LoggingTest, JsonKeepsTypes) {
  const auto line =
      Json({{"job", "gpt"}, {"ranks", uint64_t{18446744073709551615u}}, {"ok", false}, {"text", "4"}});
  EXPECT_EQ(line["time"], "2025-11-21T10:36:00.123Z");
  EXPECT_EQ(line["level"], "WARNING");
  EXPECT_EQ(line["message"], "job registered");
  EXPECT_EQ(line["job"], "gpt");
  EXPECT_EQ(line["ranks"], uint64_t{18446744073709551615u});
  EXPECT_EQ(line["ok"], false);
  EXPECT_EQ(line["text"], "4");
}

TEST(LoggingTest, JsonSurvivesWhatJsonCannotSay) {
  const auto line = Json({{"loss", std::numeric_limits<double>::quiet_NaN()}, {"bytes", "\xff\xfe"}});
  EXPECT_EQ(line["loss"], "nan");
  EXPECT_TRUE(line["bytes"].is_string());
}

TEST(LoggingTest, WritesLinesFromTheMinimumLevelOnToStderr) {
  ConfigureLogging(LogLevel::kWarning, LogFormat::kText);
  testing::internal::CaptureStderr();
  LogInfo("quiet");
  LogWarning("loud", {{"n", 1}});
  LogError("louder");
  const std::string written = testing::internal::GetCapturedStderr();
  ConfigureLogging(LogLevel::kInfo, LogFormat::kText);
  EXPECT_THAT(written, testing::Not(testing::HasSubstr("quiet")));
  EXPECT_THAT(written, testing::HasSubstr("WARNING loud n=1\n"));
  EXPECT_THAT(written, testing::HasSubstr("ERROR louder\n"));
}

}  // namespace
}  // namespace penstock
