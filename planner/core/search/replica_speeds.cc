#include "planner/core/search/replica_speeds.h"

#include <algorithm>
#include <utility>

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

// By context rank what the position takes on which it is busy longest.
std::vector<double> ContextTimes(const CostModel& costs, int replica, const std::vector<double>& busy) {
  std::vector<double> times(costs.group().context, 0);
  for (int position = 0; position < costs.positions(); ++position) {
    for (int context = 0; context < costs.group().context; ++context)
      times[context] =
          std::max(times[context], busy[position] * costs.slow_groups().FactorOf(replica, position, context));
  }
  return times;
}

// Of a pipeline whose context ranks have rows by these times.
double BusiestNs(const std::vector<double>& times) {
  const auto [least, most] = std::ranges::minmax(times);
  if (least == most || least <= 0) return most;
  double speeds = 0;
  for (const double time : times) speeds += 1 / time;
  return static_cast<double>(times.size()) / speeds;
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
    longest.push_back(std::max(link.slowed, BusiestNs(ContextTimes(costs, replica, busy))));
  }
  std::vector<double> speeds;
  for (const double time : longest) speeds.push_back(time > 0 ? usual / time : 1);
  return speeds;
}

std::vector<std::vector<double>> ContextSlowness(const CostModel& costs, const Topology& topology,
                                                 absl::Span<const SampleTokens> tokens) {
  const SlowGroups& slow = costs.slow_groups();
  if (!slow.any() || costs.group().context == 1) return {};
  const std::vector<double> busy = BusyTimes(costs, SumsOfBatch(tokens));
  std::vector<std::vector<double>> slowness(topology.replicas());
  for (int replica = 0; replica < topology.replicas(); ++replica) {
    if (!slow.IsUneven(replica)) continue;
    std::vector<double> times = ContextTimes(costs, replica, busy);
    const double least = *std::ranges::min_element(times);
    if (least <= 0) continue;
    for (double& time : times) time /= least;
    slowness[replica] = std::move(times);
  }
  return slowness;
}

}  // namespace penstock::core
