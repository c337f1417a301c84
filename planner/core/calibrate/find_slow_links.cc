#include "planner/core/calibrate/find_slow_links.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

#include "common/median/median.h"
#include "planner/core/contract/limits.h"
#include "planner/core/cost/slow_links.h"
#include "planner/core/diagnose/clearly_slow_link.h"

namespace penstock::core {
namespace {

// Of the ratios of transfers, from below: a transfer that was measured also waited for its other end to come.
constexpr double kTransferQuantile = 0.25;
// A link that was slow stays so a little longer: each change makes other plans.
constexpr double kStillSlowLink = 1.25;
constexpr size_t kFewestTransfers = 4;

using LinkEnds = std::pair<int, int>;

// Links of a kind are compared with each other, and rings with rings: how fast a collective is on links as
// they should be, transfers do not say.
constexpr size_t kMeasuredKinds = 2 * kLinks;

// A link, or the steps of a ring.
struct MeasuredSteps {
  std::vector<LinkEnds> steps;
  size_t kind = 0;
  std::vector<double> ratios = {};
};

void AddRatio(std::vector<LinkEnds> steps, size_t kind, double ratio,
              std::map<LinkEnds, MeasuredSteps>* links) {
  const LinkEnds first = steps.front();
  links->try_emplace(first, MeasuredSteps{.steps = std::move(steps), .kind = kind})
      .first->second.ratios.push_back(ratio);
}

void KeepWellMeasured(std::map<LinkEnds, MeasuredSteps>* links) {
  std::erase_if(*links, [](const auto& link) { return link.second.ratios.size() < kFewestTransfers; });
}

// A link that transfers and rings go over is measured by the transfers.
std::vector<MeasuredSteps> MeasuredLinks(absl::Span<const MeasuredTransfer> transfers,
                                         absl::Span<const MeasuredRing> rings) {
  std::map<LinkEnds, MeasuredSteps> links;
  for (const MeasuredTransfer& transfer : transfers)
    AddRatio({{transfer.from, transfer.to}}, static_cast<size_t>(transfer.link), transfer.Shorter(), &links);
  KeepWellMeasured(&links);
  std::map<LinkEnds, MeasuredSteps> of_rings;
  for (const MeasuredRing& ring : rings) {
    std::vector<LinkEnds> steps = ring.steps;
    std::erase_if(steps, [&](const LinkEnds& step) { return links.contains(step); });
    if (!steps.empty())
      AddRatio(std::move(steps), kLinks + static_cast<size_t>(ring.link), ring.ratio, &of_rings);
  }
  KeepWellMeasured(&of_rings);
  std::vector<MeasuredSteps> all;
  for (auto& [ends, link] : links) all.push_back(std::move(link));
  for (auto& [ends, ring] : of_rings) all.push_back(std::move(ring));
  return all;
}

// The median link and ring of each kind; 0: nothing is known.
std::array<double, kMeasuredKinds> UsualOfKinds(absl::Span<const MeasuredSteps> links) {
  std::array<std::vector<double>, kMeasuredKinds> ratios;
  for (const MeasuredSteps& link : links) ratios[link.kind].push_back(TransferRatio(link.ratios));
  std::array<double, kMeasuredKinds> usual;
  std::ranges::transform(ratios, usual.begin(), [](auto& of_kind) { return LowerMedian(of_kind); });
  return usual;
}

}  // namespace

double TransferRatio(std::vector<double> ratios) {
  if (ratios.empty()) return 1;
  std::ranges::sort(ratios);
  return ratios[static_cast<size_t>(kTransferQuantile * static_cast<double>(ratios.size() - 1))];
}

std::vector<SlowLink> FindSlowLinks(absl::Span<const MeasuredTransfer> transfers,
                                    absl::Span<const MeasuredRing> rings, absl::Span<const SlowLink> before) {
  const std::vector<MeasuredSteps> links = MeasuredLinks(transfers, rings);
  const std::array<double, kMeasuredKinds> usual = UsualOfKinds(links);
  const SlowLinks slow_before(before);
  std::map<LinkEnds, double> factors;
  for (const SlowLink& slow : before) factors[{slow.from, slow.to}] = slow.factor;
  for (const MeasuredSteps& link : links) {
    const double factor = TransferRatio(link.ratios) / usual[link.kind];
    for (const LinkEnds& step : link.steps) {
      const bool was_slow = slow_before.FactorOf(step.first, step.second) > 1;
      if (factor >= (was_slow ? kStillSlowLink : kClearlySlowLink)) {
        factors[step] = std::min(factor, kMostLinkSlowness);
      } else {
        factors.erase(step);
      }
    }
  }
  std::vector<SlowLink> slow;
  for (const auto& [ends, factor] : factors) slow.push_back({ends.first, ends.second, factor});
  return slow;
}

double LargestLinkChange(absl::Span<const SlowLink> before, absl::Span<const SlowLink> after) {
  std::map<LinkEnds, double> changes;
  for (const SlowLink& slow : before) changes[{slow.from, slow.to}] = std::log(slow.factor);
  for (const SlowLink& slow : after) changes[{slow.from, slow.to}] -= std::log(slow.factor);
  double largest = 0;
  for (const auto& [ends, change] : changes) largest = std::max(largest, std::abs(change));
  return largest;
}

}  // namespace penstock::core
