#include "planner/core/cost/reshard_time.h"

#include <algorithm>
#include <limits>

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

// What is left grows with the factor, by whichever of its two leads holds a pass up (LeadNs), each of them a
// line: what is left is the largest of these lines, and never more than all. So the factor is the smallest by
// one of them, and never less than by all.
double ReshardTime::FactorOf(double left_ns, absl::Span<const PassBeside> passes) const {
  const auto whole = static_cast<double>(whole_ns), count = static_cast<double>(rounds);
  double beside = std::numeric_limits<double>::infinity();
  for (const PassBeside& pass : passes) {
    const auto all = static_cast<double>(pass.stage.layers_of_rank);
    const auto below = static_cast<double>(pass.stage.below), own = static_cast<double>(pass.stage.layers);
    const auto by_line = [&](double apart_ns, double share) {
      return (left_ns + overlap * apart_ns) / (whole * (1 - overlap * share));
    };
    const double in_pass = static_cast<double>(pass.pass_ns) * std::max(0.0, 1 - all / (count * own));
    beside = std::min({beside, by_line(pass.apart_ns, (all - below) / all - 1 / count),
                       by_line(pass.apart_ns + in_pass, (all - below - own) / all)});
  }
  return std::max(left_ns / whole, passes.empty() ? 0.0 : beside);
}

}  // namespace penstock::core
