// Tracing of a program, as its flag --otlp-endpoint asks for it.
//
//   const std::unique_ptr<SpanExporter> tracing = StartTracing(flags.otlp_endpoint, "penstock-planner");
//   AddTracingMetrics(&registry, tracing.get());
//   ...
//   if (tracing != nullptr) tracing->Stop(kLastSpans);
#pragma once

#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/metrics/metrics.h"
#include "common/tracing/span_exporter.h"

namespace penstock {

// How long a program that ends waits for its last spans to be taken.
inline constexpr absl::Duration kLastSpans = absl::Seconds(2);

// Null where `endpoint`, the "host:port" of a collector, is empty. `program` becomes service.name.
std::unique_ptr<SpanExporter> StartTracing(const std::string& endpoint, const std::string& program);

// penstock_spans_exported_total and penstock_spans_dropped_total{reason}; none where `exporter` is null.
// Scrapes must end before it goes.
void AddTracingMetrics(MetricsRegistry* registry, const SpanExporter* exporter);

}  // namespace penstock
