// Structured log lines on stderr, as text for people or JSON lines for machines.
//
//   ConfigureLogging(LogLevel::kInfo, LogFormat::kText);
//   LogInfo("job registered", {{"job", spec.job_id()}, {"ranks", 4}});
//   // 2026-11-21T10:36:00.123Z INFO job registered job=gpt ranks=4
//
// A line is one message (constant, so that it can be searched for) and fields that vary. Thread-safe; a line
// is written with one write(2) and is never interleaved with another.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace penstock {

enum class LogLevel { kDebug, kInfo, kWarning, kError };
enum class LogFormat { kText, kJson };

// Lines below `minimum` are dropped. Before the first call: kInfo, kText.
void ConfigureLogging(LogLevel minimum, LogFormat format);
// From now on. Returns the level before.
LogLevel SetMinimumLogLevel(LogLevel minimum);

// "debug", "info", "warning", "error"; nothing for other words.
std::optional<LogLevel> LogLevelFromName(absl::string_view name);
absl::string_view LogLevelName(LogLevel level);
// All of them, the one that logs most first.
std::vector<std::string> LogLevelNames();

// A name and a value. Numbers and booleans stay bare in JSON, everything else is a string.
class LogField {
 public:
  LogField(absl::string_view key, absl::string_view text) : key_(key), value_(text), text_(true) {}
  LogField(absl::string_view key, const char* text) : LogField(key, absl::string_view(text)) {}
  LogField(absl::string_view key, const std::string& text) : LogField(key, absl::string_view(text)) {}
  LogField(absl::string_view key, bool value) : key_(key), value_(value ? "true" : "false"), text_(false) {}
  template <typename Number, typename = std::enable_if_t<std::is_arithmetic_v<Number>>>
  LogField(absl::string_view key, Number number) : key_(key), value_(absl::StrCat(number)), text_(false) {}

  const std::string& key() const { return key_; }
  const std::string& value() const { return value_; }
  bool is_text() const { return text_; }

 private:
  std::string key_;
  std::string value_;
  bool text_;
};

void Log(LogLevel level, absl::string_view message, std::initializer_list<LogField> fields = {});

inline void LogDebug(absl::string_view message, std::initializer_list<LogField> fields = {}) {
  Log(LogLevel::kDebug, message, fields);
}
inline void LogInfo(absl::string_view message, std::initializer_list<LogField> fields = {}) {
  Log(LogLevel::kInfo, message, fields);
}
inline void LogWarning(absl::string_view message, std::initializer_list<LogField> fields = {}) {
  Log(LogLevel::kWarning, message, fields);
}
inline void LogError(absl::string_view message, std::initializer_list<LogField> fields = {}) {
  Log(LogLevel::kError, message, fields);
}

// The line that Log() writes, without its newline. Line breaks inside values are escaped.
std::string FormatLogLine(LogFormat format, absl::Time time, LogLevel level, absl::string_view message,
                          const std::vector<LogField>& fields);

}  // namespace penstock
