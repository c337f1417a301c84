// How a cost profile says that shares of context ranks were measured for it too: in its comment.
//
//   comment = WithMeasuredContexts(comment, {2, 4});
//   for (const uint32_t contexts : MeasuredContextsOf(profile.comment())) ...
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace penstock {

// `comment` itself where there are none. What is said of disturbances (disturbance.h) comes behind it.
std::string WithMeasuredContexts(absl::string_view comment, const std::vector<uint32_t>& contexts);

// Of how many context ranks, each above 1; empty: none were measured, or the comment is somebody else's.
std::vector<uint32_t> MeasuredContextsOf(absl::string_view comment);

}  // namespace penstock
