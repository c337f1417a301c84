#include "planner/core/cost/reduce_time.h"

#include <algorithm>
#include <cmath>

#include "planner/core/cost/rounding.h"

namespace penstock::core {
namespace {

// Of so many buckets beside so long a pass.
int64_t HiddenNs(const ReduceTime& time, double pass_ns) {
  const auto count = static_cast<double>(time.buckets);
  const double beside = std::min(static_cast<double>(time.bucket_ns), pass_ns / count);
  return static_cast<int64_t>(std::floor(time.overlap * (count - 1) * beside));
}

}  // namespace

int64_t ReduceTime::WholeNs() const {
  return RoundToInteger(static_cast<double>(buckets) * static_cast<double>(bucket_ns));
}

int64_t ReduceTime::LeftNs(int64_t pass_ns) const {
  if (pass_ns == kNoPass) return WholeNs();
  return WholeNs() - HiddenNs(*this, static_cast<double>(pass_ns));
}

int64_t ReduceTime::LeastLeftNs() const {
  return WholeNs() - HiddenNs(*this, std::numeric_limits<double>::infinity());
}

int64_t LastPasses::TakeReduce(int stage) {
  const auto found = last_ns_.find(stage);
  const int64_t own_ns = found == last_ns_.end() ? ReduceTime::kNoPass : found->second;
  for (auto& [other, ns] : last_ns_) ns = 0;
  return own_ns;
}

}  // namespace penstock::core
