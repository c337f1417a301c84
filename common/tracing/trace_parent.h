// The span of a caller, as W3C's Trace Context has it in the headers of a call
// (https://www.w3.org/TR/trace-context, section 3).
#pragma once

#include <optional>

#include "absl/strings/string_view.h"
#include "common/tracing/trace_span.h"

namespace penstock {

inline constexpr char kTraceParentHeader[] = "traceparent";
inline constexpr char kTraceStateHeader[] = "tracestate";

// "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"; nothing where it is none, which W3C wants
// ignored. `state` is kept as it is.
std::optional<SpanLink> ParseTraceParent(absl::string_view header, absl::string_view state);

}  // namespace penstock
