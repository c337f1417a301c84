#include "common/metrics/process_metrics.h"

#include <sys/resource.h>
#include <sys/time.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <vector>

#include "common/process/freed_memory.h"
#include "common/version/version.h"

namespace penstock {
namespace {

using Samples = std::vector<MetricSample>;

double SecondsOf(const timeval& time) {
  constexpr double kMicrosecondsPerSecond = 1e6;
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / kMicrosecondsPerSecond;
}

Samples CpuSeconds() {
  rusage usage = {};
  if (getrusage(RUSAGE_SELF, &usage) != 0) return {};
  return {{{}, SecondsOf(usage.ru_utime) + SecondsOf(usage.ru_stime)}};
}

Samples ResidentMemory() {
  const size_t bytes = ResidentBytes();
  if (bytes == 0) return {};
  return {{{}, static_cast<double>(bytes)}};
}

Samples OpenDescriptors() {
  std::error_code error;
  const std::filesystem::directory_iterator open("/proc/self/fd", error);
  if (error) return {};
  // One of them is the folder's own.
  return {{{}, static_cast<double>(std::distance(open, std::filesystem::directory_iterator()) - 1)}};
}

Samples MostDescriptors() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return {};
  return {{{}, static_cast<double>(limit.rlim_cur)}};
}

}  // namespace

void AddProcessMetrics(MetricsRegistry* registry, const std::string& program) {
  const double start =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  registry->AddComputedCounter("process_cpu_seconds_total", "User and system time of the process.",
                               CpuSeconds);
  registry->AddComputedGauge("process_resident_memory_bytes", "Resident memory of the process.",
                             ResidentMemory);
  registry->AddComputedGauge("process_open_fds", "File descriptors that are open.", OpenDescriptors);
  registry->AddComputedGauge("process_max_fds", "File descriptors that may be open.", MostDescriptors);
  registry->AddComputedGauge("process_start_time_seconds", "When the process began, since 1970.", [start] {
    return Samples{{{}, start}};
  });
  registry->AddComputedGauge("penstock_build_info", "1; what runs is in its labels.", [program] {
    return Samples{
        {{{"program", program}, {"version", std::string(Version())}, {"commit", std::string(Commit())}}, 1}};
  });
}

}  // namespace penstock
