#include "common/tracing/tracing.h"

#include <unistd.h>

#include <vector>

#include "common/logging/logging.h"
#include "common/net/host_name.h"
#include "common/tracing/otlp_transport.h"
#include "common/version/version.h"

namespace penstock {

std::unique_ptr<SpanExporter> StartTracing(const std::string& endpoint, const std::string& program) {
  if (endpoint.empty()) return nullptr;
  LogInfo("spans are exported", {{"collector", endpoint}});
  return std::make_unique<SpanExporter>(
      SpanExporterOptions(), ConnectToCollector(endpoint, {{"service.name", program},
                                                           {"service.version", std::string(Version())},
                                                           {"host.name", HostName()},
                                                           {"process.pid", static_cast<int64_t>(getpid())}}));
}

void AddTracingMetrics(MetricsRegistry* registry, const SpanExporter* exporter) {
  if (exporter == nullptr) return;
  registry->AddComputedCounter(
      "penstock_spans_exported_total", "Spans that the collector has taken.", [exporter] {
        return std::vector<MetricSample>{{{}, static_cast<double>(exporter->counts().exported)}};
      });
  registry->AddComputedCounter(
      "penstock_spans_dropped_total",
      "Spans that were lost: they found no room, the collector did not take them in time, or refused them.",
      [exporter] {
        const SpanCounts counts = exporter->counts();
        return std::vector<MetricSample>{
            {{{"reason", "queue_full"}}, static_cast<double>(counts.queue_full)},
            {{{"reason", "undelivered"}}, static_cast<double>(counts.undelivered)},
            {{{"reason", "refused"}}, static_cast<double>(counts.refused)}};
      });
}

}  // namespace penstock
