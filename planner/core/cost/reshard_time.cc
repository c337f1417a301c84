#include "planner/core/cost/reshard_time.h"

#include <algorithm>

namespace penstock::core {

double ReshardTime::LeadNs(int64_t pass_ns, const StageOfRank& stage) const {
  const auto whole = static_cast<double>(whole_ns), count = static_cast<double>(rounds);
  const auto all = static_cast<double>(stage.layers_of_rank), below = static_cast<double>(stage.below);
  const auto own = static_cast<double>(stage.layers);
  const double of_last = whole * ((all - below) / all - 1 / count);
  const double of_first = static_cast<double>(pass_ns) * std::max(0.0, 1 - all / (count * own)) +
                          whole * (all - below - own) / all;
  return std::min(of_last, of_first);
}

int64_t ReshardTime::LeftNs(double lead_ns) const {
  return whole_ns - static_cast<int64_t>(overlap * std::max(0.0, lead_ns));
}

int64_t ReshardTime::LeastLeftNs() const {
  return LeftNs(static_cast<double>(whole_ns) * (1 - 1 / static_cast<double>(rounds)));
}

}  // namespace penstock::core
