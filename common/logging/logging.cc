#include "common/logging/logging.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/time/clock.h"

namespace penstock {
namespace {

constexpr LogLevel kLevels[] = {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarning, LogLevel::kError};

std::atomic<LogLevel> minimum_level{LogLevel::kInfo};
std::atomic<LogFormat> line_format{LogFormat::kText};

bool NeedsQuotes(const std::string& value) {
  // Control characters: who reads the log on a terminal must not be told what to show by others' names.
  const auto is_special = [](unsigned char c) {
    return c < ' ' || c == 0x7f || std::strchr(" =\"\\", c) != nullptr;
  };
  return value.empty() || std::ranges::any_of(value, is_special);
}

// As JSON, with bytes that are no UTF-8 replaced.
std::string Dump(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string TextLine(const std::string& time, LogLevel level, absl::string_view message,
                     const std::vector<LogField>& fields) {
  std::string line = absl::StrCat(time, " ", absl::AsciiStrToUpper(LogLevelName(level)), " ", message);
  for (const LogField& field : fields) {
    const bool quoted = field.is_text() && NeedsQuotes(field.value());
    absl::StrAppend(&line, " ", field.key(), "=", quoted ? Dump(field.value()) : field.value());
  }
  return line;
}

nlohmann::ordered_json JsonValue(const LogField& field) {
  if (field.is_text()) return field.value();
  // "nan" and "inf" are no JSON numbers.
  auto number = nlohmann::ordered_json::parse(field.value(), nullptr, /*allow_exceptions=*/false);
  if (number.is_discarded()) return field.value();
  return number;
}

std::string JsonLine(const std::string& time, LogLevel level, absl::string_view message,
                     const std::vector<LogField>& fields) {
  nlohmann::ordered_json line;
  line["time"] = time;
  line["level"] = absl::AsciiStrToUpper(LogLevelName(level));
  line["message"] = std::string(message);
  for (const LogField& field : fields) line[field.key()] = JsonValue(field);
  return Dump(line);
}

}  // namespace

void ConfigureLogging(LogLevel minimum, LogFormat format) {
  minimum_level = minimum;
  line_format = format;
}

LogLevel SetMinimumLogLevel(LogLevel minimum) { return minimum_level.exchange(minimum); }

std::optional<LogLevel> LogLevelFromName(absl::string_view name) {
  for (const LogLevel level : kLevels)
    if (LogLevelName(level) == name) return level;
  return std::nullopt;
}

std::vector<std::string> LogLevelNames() {
  std::vector<std::string> names;
  for (const LogLevel level : kLevels) names.emplace_back(LogLevelName(level));
  return names;
}

absl::string_view LogLevelName(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
  }
  return "";
}

std::string FormatLogLine(LogFormat format, absl::Time time, LogLevel level, absl::string_view message,
                          const std::vector<LogField>& fields) {
  const std::string stamp = absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", time, absl::UTCTimeZone());
  return format == LogFormat::kJson ? JsonLine(stamp, level, message, fields)
                                    : TextLine(stamp, level, message, fields);
}

void Log(LogLevel level, absl::string_view message, std::initializer_list<LogField> fields) {
  if (level < minimum_level.load(std::memory_order_relaxed)) return;
  const std::string line =
      absl::StrCat(FormatLogLine(line_format.load(std::memory_order_relaxed), absl::Now(), level, message,
                                 std::vector<LogField>(fields)),
                   "\n");
  // A log that cannot be written has nowhere to complain.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace penstock
