#include "planner/core/timeline/core_shares.h"

#include <algorithm>

namespace penstock::core {
namespace {

// A thread that had less of its core has hardly run: its clocks are not to be believed.
constexpr double kLeastCoreShare = 1e-3;

}  // namespace

std::vector<double> CoreSharesOf(const MeasuredIteration& iteration) {
  std::vector<double> shares(iteration.plan->programs_size(), 1.0);
  for (const v1::ReportIterationRequest* report : iteration.reports) {
    if (report->rank() >= shares.size() || report->lone_pass_ns() <= 0 || report->lone_pass_core_ns() <= 0)
      continue;
    const double share =
        static_cast<double>(report->lone_pass_core_ns()) / static_cast<double>(report->lone_pass_ns());
    shares[report->rank()] = std::clamp(share, kLeastCoreShare, 1.0);
  }
  return shares;
}

}  // namespace penstock::core
