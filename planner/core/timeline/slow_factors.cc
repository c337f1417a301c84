#include "planner/core/timeline/slow_factors.h"

#include <algorithm>
#include <cstdint>
#include <map>

namespace penstock::core {

std::vector<double> SlowFactors(const v1::Plan& plan, const v1::CostProfile& profile) {
  std::vector<double> factors(plan.programs_size(), 1);
  if (profile.slow_ranks().empty()) return factors;
  std::map<uint32_t, double> of_rank;
  for (const v1::SlowRank& slow : profile.slow_ranks()) of_rank[slow.rank()] = slow.factor();
  for (const v1::ReplicaTopology& replica : plan.topology().replicas()) {
    for (const v1::StageTopology& stage : replica.stages()) {
      double slowest = 1;
      for (const uint32_t rank : stage.ranks()) {
        if (const auto found = of_rank.find(rank); found != of_rank.end())
          slowest = std::max(slowest, found->second);
      }
      for (const uint32_t rank : stage.ranks()) {
        if (rank < factors.size()) factors[rank] = slowest;
      }
    }
  }
  return factors;
}

}  // namespace penstock::core
