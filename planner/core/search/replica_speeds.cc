#include "planner/core/search/replica_speeds.h"

#include <algorithm>

namespace penstock::core {
namespace {

TokenSums SumsOfBatch(absl::Span<const SampleTokens> tokens) {
  TokenSums batch;
  for (const SampleTokens& sample : tokens) AddPacked(sample, &batch);
  return batch;
}

// By position. Where the profile says nothing of so many tokens, all are as busy.
std::vector<double> BusyTimes(const CostModel& costs, const TokenSums& batch) {
  LayerCosts layers;
  if (!costs.Layers(costs.EvenShare(batch), &layers)) return std::vector<double>(costs.positions(), 1);
  std::vector<double> busy(costs.positions(), 0);
  for (int stage = 0; stage < costs.stages(); ++stage) {
    busy[costs.position_of(stage)] += static_cast<double>(costs.ForwardNs(stage, layers) +
                                                          costs.BackwardNs(stage, layers, StageRecompute()));
  }
  return busy;
}

// Of the link between two stages that is busy longest, in one direction; as it is, and without slow links.
struct LinkTimes {
  double slowed = 0;
  double usual = 0;
};

LinkTimes LongestLink(const CostModel& costs, const Topology& topology, int replica, const TokenSums& batch) {
  LinkTimes longest;
  if (!costs.slow_links().any()) return longest;
  const TokenSums share = costs.EvenShare(batch);
  for (int stage = 0; stage + 1 < costs.stages(); ++stage) {
    if (costs.position_of(stage) == costs.position_of(stage + 1)) continue;
    const auto usual = static_cast<double>(
        costs.LinkNs(costs.BoundaryBytes(stage, share), costs.LinkAcross(topology, replica, stage)));
    longest.usual = std::max(longest.usual, usual);
    for (const bool gradients : {false, true})
      longest.slowed =
          std::max(longest.slowed, usual * costs.SlownessAcross(topology, replica, stage, gradients));
  }
  return longest;
}

}  // namespace

std::vector<double> ReplicaSpeeds(const CostModel& costs, const Topology& topology,
                                  absl::Span<const SampleTokens> tokens) {
  const SlowGroups& slow = costs.slow_groups();
  if (!slow.any() && !costs.slow_links().any()) return {};
  const TokenSums batch = SumsOfBatch(tokens);
  const std::vector<double> busy = BusyTimes(costs, batch);
  double usual = *std::max_element(busy.begin(), busy.end());
  std::vector<double> longest;
  for (int replica = 0; replica < topology.replicas(); ++replica) {
    const LinkTimes link = LongestLink(costs, topology, replica, batch);
    usual = std::max(usual, link.usual);
    longest.push_back(link.slowed);
    for (int position = 0; position < costs.positions(); ++position)
      longest.back() = std::max(longest.back(), busy[position] * slow.FactorOf(replica, position));
  }
  std::vector<double> speeds;
  for (const double time : longest) speeds.push_back(time > 0 ? usual / time : 1);
  return speeds;
}

}  // namespace penstock::core
