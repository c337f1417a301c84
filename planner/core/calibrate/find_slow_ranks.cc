#include "planner/core/calibrate/find_slow_ranks.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <utility>

#include "common/median/median.h"
#include "common/median/weighted_median.h"
#include "planner/core/calibrate/foretold_pass.h"

namespace penstock::core {
namespace {

// Less than this is noise, which would change plans for nothing; a rank that was slow stays so a little
// longer.
constexpr double kClearlySlow = 1.08;
constexpr double kStillSlow = 1.04;
// All ranks of a position may be slow, and so may the one of a single replica; below this, its layers or its
// head are as likely to be dearer.
constexpr double kSlowPosition = 1.2;
// More is no slow rank but one that stands still.
constexpr double kMostSlow = 20;
constexpr size_t kFewestPasses = 4;

// What a rank of each position takes that is not slow, of the medians of ranks, 0 of those that have none; 0:
// unknown. Ranks are compared with those of the same position, which run the same layers, and a position with
// all others where it is far off.
std::vector<double> UsualOfPositions(const Topology& topology, const std::vector<double>& medians,
                                     bool peers_alone) {
  std::vector<std::vector<double>> peers(topology.shape().positions);
  for (int rank = 0; rank < topology.ranks(); ++rank) {
    if (medians[rank] > 0) peers[topology.PlaceOf(rank).position].push_back(medians[rank]);
  }
  const bool have_peers =
      topology.replicas() > 1 || std::ranges::any_of(peers, [](const auto& of) { return of.size() > 1; });
  std::vector<double> usual;
  for (std::vector<double>& of_position : peers) usual.push_back(LowerMedian(of_position));
  if (peers_alone && have_peers) return usual;
  std::vector<double> known;
  std::copy_if(usual.begin(), usual.end(), std::back_inserter(known), [](double value) { return value > 0; });
  // Where there are two groups, the slower one is the slow one.
  const double of_all = LowerMedian(known);
  for (double& value : usual) {
    if (value > kSlowPosition * of_all) value = of_all;
  }
  return usual;
}

// The group of this rank, its first one.
std::vector<SlowRank> SlowGroup(const Topology& topology, int first, double factor) {
  const GroupShape& group = topology.shape().group;
  const RankPlace place = topology.PlaceOf(first);
  std::vector<SlowRank> slow;
  for (int context = 0; context < (group.divides_experts() ? 1 : group.context); ++context)
    slow.push_back({topology.RankAt(place.replica, place.position, context * group.tensor), factor});
  return slow;
}

// By how much longer a group took for a pass than its ranks would that are not slow.
double SlownessOfGroup(const SlowGroups& groups, const RankPlace& place, const MeasuredPass& pass) {
  if (pass.context_work.empty()) return groups.FactorOf(place.replica, place.position);
  double longest = 0;
  for (size_t context = 0; context < pass.context_work.size(); ++context) {
    const double factor = groups.FactorOf(place.replica, place.position, static_cast<int>(context));
    longest = std::max(longest, pass.context_work[context] * factor);
  }
  return longest;
}

}  // namespace

std::vector<SlowRank> FindSlowRanks(const CostModel& costs, PassesOf of,
                                    absl::Span<const MeasuredPass> passes, absl::Span<const SlowRank> before,
                                    bool peers_alone) {
  const Topology& topology = costs.topology();
  std::vector<std::vector<WeightedValue>> ratios(topology.ranks());
  for (const MeasuredPass& pass : passes) {
    if (pass.rank < 0) continue;
    const double foretold = ForetoldNs(costs, pass);
    if (foretold <= 0) continue;
    const RankPlace place = topology.PlaceOf(pass.rank);
    const int rank = of == PassesOf::kRanks ? pass.rank : topology.RankAt(place.replica, place.position);
    ratios[rank].push_back({pass.duration_ns / foretold, foretold});
  }
  std::vector<double> medians(ratios.size(), 0);
  for (size_t rank = 0; rank < ratios.size(); ++rank) {
    if (ratios[rank].size() >= kFewestPasses) medians[rank] = WeightedMedian(std::move(ratios[rank]));
  }
  const std::vector<double> usual = UsualOfPositions(topology, medians, peers_alone);
  std::vector<SlowRank> slow;
  for (int rank = 0; rank < topology.ranks(); ++rank) {
    const double of_peers = usual[topology.PlaceOf(rank).position];
    if (of_peers <= 0) continue;
    const bool was_slow =
        std::any_of(before.begin(), before.end(), [&](const SlowRank& one) { return one.rank == rank; });
    const double factor = medians[rank] / of_peers;
    if (factor < (was_slow ? kStillSlow : kClearlySlow)) continue;
    const double named = std::min(factor, kMostSlow);
    if (of == PassesOf::kRanks) {
      slow.push_back({rank, named});
    } else {
      std::ranges::copy(SlowGroup(topology, rank, named), std::back_inserter(slow));
    }
  }
  return slow;
}

double LargestChange(absl::Span<const SlowRank> before, absl::Span<const SlowRank> after) {
  std::map<int32_t, double> changes;
  for (const SlowRank& slow : before) changes[slow.rank] = std::log(slow.factor);
  for (const SlowRank& slow : after) changes[slow.rank] -= std::log(slow.factor);
  double largest = 0;
  for (const auto& [rank, change] : changes) largest = std::max(largest, std::abs(change));
  return largest;
}

void TakeSlownessOut(absl::Span<const SlowRank> slow, const Topology& topology, PassesOf of,
                     std::vector<MeasuredPass>* passes) {
  const SlowGroups groups(slow, topology);
  std::vector<double> of_ranks(topology.ranks(), 1);
  for (const SlowRank& one : slow) of_ranks[one.rank] = one.factor;
  for (MeasuredPass& pass : *passes) {
    if (pass.rank < 0) continue;
    const RankPlace place = topology.PlaceOf(pass.rank);
    pass.duration_ns /= of == PassesOf::kRanks ? of_ranks[pass.rank] : SlownessOfGroup(groups, place, pass);
  }
}

}  // namespace penstock::core
