// How measured values are printed.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/sync/sync.h"
#include "tests/bench/latencies.h"

namespace penstock::bench {

inline nlohmann::ordered_json Quantiles(const Latencies& latencies) {
  const auto at = [&](double share) { return absl::ToDoubleMilliseconds(latencies.Quantile(share)); };
  return {{"count", latencies.count()}, {"p50_ms", at(0.5)}, {"p99_ms", at(0.99)}, {"max_ms", at(1)}};
}

// How often calls ended with each status code. Thread-safe.
class Outcomes {
 public:
  void Add(const absl::Status& status) {
    MutexLock lock(&mutex_);
    counts_[absl::StatusCodeToString(status.code())] += 1;
  }
  nlohmann::ordered_json ToJson() const {
    MutexLock lock(&mutex_);
    return counts_;
  }

 private:
  mutable Mutex mutex_;
  std::map<std::string, int> counts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace penstock::bench
