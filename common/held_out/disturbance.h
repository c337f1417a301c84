// How a cost profile says that something disturbed its measurement: in its comment, behind all else.
//
//   profile.set_comment(WithDisturbance("medians of 2026-11-26", "the thread had 41 % of its core"));
//   if (!DisturbanceOf(profile.comment()).empty()) ...   // measured, but not worth keeping
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace penstock {

// `comment` itself where nothing disturbed.
std::string WithDisturbance(absl::string_view comment, absl::string_view disturbance);

// Empty: nothing did.
std::string DisturbanceOf(absl::string_view comment);

}  // namespace penstock
