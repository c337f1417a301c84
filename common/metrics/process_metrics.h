// What Prometheus' own client libraries say of their process, under the names that dashboards know.
#pragma once

#include <string>

#include "common/metrics/metrics.h"

namespace penstock {

// process_cpu_seconds_total, process_resident_memory_bytes, process_open_fds, process_max_fds,
// process_start_time_seconds, read from /proc/self at each scrape;
// penstock_build_info{program,version,commit}.
void AddProcessMetrics(MetricsRegistry* registry, const std::string& program);

}  // namespace penstock
