#include "common/simulation/clock_error.h"

#include <CLI/CLI.hpp>
#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/simulation/list_flag.h"

namespace penstock {
namespace {

// A day; and a clock that nobody would build.
constexpr double kMostSecondsAhead = 86400;
constexpr double kMostDriftPpm = 1e4;

}  // namespace

absl::StatusOr<ClockError> ParseClockError(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  ClockError error;
  const bool read = parts.size() == 3 && absl::SimpleAtoi(parts[0], &error.rank) &&
                    absl::SimpleAtod(parts[1], &error.seconds) &&
                    absl::SimpleAtod(parts[2], &error.drift_ppm);
  // NaN is not.
  if (read && std::abs(error.seconds) <= kMostSecondsAhead && std::abs(error.drift_ppm) <= kMostDriftPpm)
    return error;
  return absl::InvalidArgumentError(
      absl::StrCat("--clock-error '", text, "': give RANK:SECONDS:PPM, e.g. 3:-0.5:100"));
}

void AddClockErrorFlag(CLI::App& app, std::vector<ClockError>& errors) {
  AddListFlag(app, "--clock-error", errors, ParseClockError,
              "For tests: RANK:SECONDS:PPM, a rank whose clock is ahead, and gains")
      ->group("");
}

absl::Status CheckClockErrors(const std::vector<ClockError>& errors, uint32_t ranks) {
  for (const ClockError& error : errors) {
    if (error.rank >= ranks) {
      return absl::InvalidArgumentError(absl::StrCat("--clock-error: there is no rank ", error.rank,
                                                     ", the job has ranks 0 to ", ranks - 1));
    }
  }
  return absl::OkStatus();
}

std::vector<std::string> ClockErrorArguments(const std::vector<ClockError>& errors) {
  std::vector<std::string> arguments;
  for (const ClockError& error : errors) {
    arguments.push_back(
        absl::StrFormat("--clock-error=%u:%.17g:%.17g", error.rank, error.seconds, error.drift_ppm));
  }
  return arguments;
}

}  // namespace penstock
