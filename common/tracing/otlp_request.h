// Spans as a collector takes them: a request of OTLP (proto/opentelemetry).
#pragma once

#include <vector>

#include "common/tracing/trace_span.h"
#include "opentelemetry/proto/collector/trace/v1/trace_service.pb.h"

namespace penstock {

// `resource`: what is true of all spans of this process. Texts are cut at 1,024 bytes, and
// what is not ASCII in them becomes a question mark.
opentelemetry::proto::collector::trace::v1::ExportTraceServiceRequest ToOtlp(
    const std::vector<TraceSpan>& spans, const std::vector<SpanAttribute>& resource);

}  // namespace penstock
