#include "planner/core/search/replica_speeds.h"

#include <algorithm>

namespace penstock::core {
namespace {

// By position. Where the profile says nothing of so many tokens, all are as busy.
std::vector<double> BusyTimes(const CostModel& costs, absl::Span<const SampleTokens> tokens) {
  TokenSums batch;
  for (const SampleTokens& sample : tokens) AddPacked(sample, &batch);
  LayerCosts layers;
  if (!costs.Layers(costs.EvenShare(batch), &layers)) return std::vector<double>(costs.positions(), 1);
  std::vector<double> busy(costs.positions(), 0);
  for (int stage = 0; stage < costs.stages(); ++stage) {
    busy[costs.position_of(stage)] += static_cast<double>(costs.ForwardNs(stage, layers) +
                                                          costs.BackwardNs(stage, layers, StageRecompute()));
  }
  return busy;
}

}  // namespace

std::vector<double> ReplicaSpeeds(const CostModel& costs, int replicas,
                                  absl::Span<const SampleTokens> tokens) {
  const SlowGroups& slow = costs.slow_groups();
  if (!slow.any()) return {};
  const std::vector<double> busy = BusyTimes(costs, tokens);
  const double usual = *std::max_element(busy.begin(), busy.end());
  std::vector<double> speeds;
  for (int replica = 0; replica < replicas; ++replica) {
    double longest = 0;
    for (int position = 0; position < costs.positions(); ++position)
      longest = std::max(longest, busy[position] * slow.FactorOf(replica, position));
    speeds.push_back(longest > 0 ? usual / longest : 1);
  }
  return speeds;
}

}  // namespace penstock::core
