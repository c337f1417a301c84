// Clocks of ranks that are wrong on purpose: whoever puts clocks right (planner/core/clocks) is tried out on
// ranks of one machine, whose clocks agree.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace CLI {
class App;
}

namespace penstock {

// When `rank` begins its first iteration its clock is so many seconds ahead, and from then on it gains so
// many microseconds a second. Either may be negative.
struct ClockError {
  uint32_t rank = 0;
  double seconds = 0;
  double drift_ppm = 0;
};

// --clock-error RANK:SECONDS:PPM, which may be given several times and stands in no help: of `penstock up`
// and of workers, whatever they run on. `errors` must outlive the parse.
void AddClockErrorFlag(CLI::App& app, std::vector<ClockError>& errors);

// Possible errors: INVALID_ARGUMENT, naming the flag (form, range, or a rank that the job does not have).
absl::StatusOr<ClockError> ParseClockError(const std::string& text);
absl::Status CheckClockErrors(const std::vector<ClockError>& errors, uint32_t ranks);

// The flags that say the same.
std::vector<std::string> ClockErrorArguments(const std::vector<ClockError>& errors);

}  // namespace penstock
