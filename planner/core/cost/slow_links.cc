#include "planner/core/cost/slow_links.h"

#include <algorithm>

#include "planner/core/cost/rounding.h"

namespace penstock::core {

SlowLinks::SlowLinks(absl::Span<const SlowLink> links) {
  for (const SlowLink& slow : links) {
    double& factor = factors_.try_emplace({slow.from, slow.to}, 1).first->second;
    factor = std::max(factor, slow.factor);
  }
}

double SlowLinks::FactorOf(int32_t from, int32_t to) const {
  const auto slow = factors_.find({from, to});
  return slow == factors_.end() ? 1 : slow->second;
}

int64_t SlowLinks::Slowed(int64_t ns, int32_t from, int32_t to) const {
  const double factor = FactorOf(from, to);
  return factor > 1 ? RoundToInteger(static_cast<double>(ns) * factor) : ns;
}

}  // namespace penstock::core
