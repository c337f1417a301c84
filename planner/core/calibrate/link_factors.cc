#include "planner/core/calibrate/link_factors.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "common/median/median.h"
#include "planner/core/calibrate/find_slow_links.h"
#include "planner/core/cost/slow_links.h"

namespace penstock::core {
namespace {

constexpr double kMostLinkFactor = 50;

using Ratios = std::array<std::vector<double>, kLinks>;

Ratios RatiosOf(absl::Span<const MeasuredTransfer> transfers, const SlowLinks& slow) {
  Ratios ratios;
  for (const MeasuredTransfer& transfer : transfers) {
    if (transfer.sent == 0) continue;
    ratios[static_cast<size_t>(transfer.link)].push_back(transfer.sent /
                                                         slow.FactorOf(transfer.from, transfer.to));
  }
  return ratios;
}

// A ring is as slow as its slowest step.
double SlownessOf(const RingSteps& steps, const SlowLinks& slow) {
  double slowness = 1;
  for (const auto& [from, to] : steps) slowness = std::max(slowness, slow.FactorOf(from, to));
  return slowness;
}

// With shares there are RESHARDs, without them rings.
Ratios RatiosOf(absl::Span<const MeasuredRing> rings, absl::Span<const MeasuredReshard> reshards,
                const SlowLinks& slow) {
  Ratios ratios;
  for (const MeasuredReshard& reshard : reshards)
    ratios[static_cast<size_t>(reshard.link)].push_back(reshard.ratio);
  for (const MeasuredRing& ring : rings)
    ratios[static_cast<size_t>(ring.link)].push_back(ring.ratio / SlownessOf(ring.steps, slow));
  return ratios;
}

std::optional<double> FactorOf(const std::vector<double>& transfers, const std::vector<double>& collectives) {
  if (!transfers.empty()) return std::clamp(TransferRatio(transfers), 1 / kMostLinkFactor, kMostLinkFactor);
  if (!collectives.empty()) return std::clamp(TransferRatio(collectives), 1.0, kMostLinkFactor);
  return std::nullopt;
}

}  // namespace

std::array<double, kLinks> LinkFactors(absl::Span<const MeasuredTransfer> transfers,
                                       absl::Span<const MeasuredRing> rings,
                                       absl::Span<const MeasuredReshard> reshards,
                                       absl::Span<const SlowLink> slow) {
  const SlowLinks slow_links(slow);
  const Ratios of_transfers = RatiosOf(transfers, slow_links);
  const Ratios of_collectives = RatiosOf(rings, reshards, slow_links);
  std::array<std::optional<double>, kLinks> known;
  for (size_t link = 0; link < kLinks; ++link)
    known[link] = FactorOf(of_transfers[link], of_collectives[link]);
  std::array<double, kLinks> factors;
  for (size_t link = 0; link < kLinks; ++link)
    factors[link] = known[link].value_or(known[1 - link].value_or(1));
  return factors;
}

double OptimizerFactor(absl::Span<const MeasuredStep> steps, const std::array<double, kLinks>& links,
                       absl::Span<const SlowLink> slow) {
  const SlowLinks slow_links(slow);
  std::vector<double> ratios;
  for (const MeasuredStep& step : steps) {
    const double gathered_ns =
        step.gather_ns * links[static_cast<size_t>(step.link)] * SlownessOf(step.ring, slow_links);
    const double in_proportion = step.measured_ns / (step.update_ns + gathered_ns);
    // Where gathering takes less than it should, what is left of the step says nothing of the update.
    ratios.push_back(std::max((step.measured_ns - gathered_ns) / step.update_ns, in_proportion));
  }
  return ratios.empty() ? 1 : LowerMedian(ratios);
}

}  // namespace penstock::core
