// What another way saves of an iteration, as reports say it.
#pragma once

#include <string>

#include "absl/strings/str_format.h"

namespace penstock::cli {

// Less than this is not worth a switch by what plans say of themselves.
inline constexpr double kWorthSwitching = 0.01;

inline double SavedShare(double instead_ms, double now_ms) { return 1 - instead_ms / now_ms; }

// "-12.3%" is slower.
inline std::string GainText(double gain) { return absl::StrFormat("%+.1f%%", 100 * gain); }

}  // namespace penstock::cli
