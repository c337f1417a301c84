#include "planner/core/timeline/slow_factors.h"

#include <algorithm>
#include <cstdint>
#include <map>

#include "common/mesh/rank_places.h"

namespace penstock::core {

std::vector<double> SlowFactors(const v1::Plan& plan, const v1::CostProfile& profile) {
  std::vector<double> factors(plan.programs_size(), 1);
  if (profile.slow_ranks().empty()) return factors;
  std::map<uint32_t, double> of_rank;
  for (const v1::SlowRank& slow : profile.slow_ranks()) of_rank[slow.rank()] = slow.factor();
  for (int replica = 0; replica < plan.topology().replicas_size(); ++replica) {
    const v1::Mesh& mesh = MeshOfReplica(plan, static_cast<uint32_t>(replica));
    for (const v1::StageTopology& stage : plan.topology().replicas(replica).stages()) {
      // Those of a context rank wait for each other in every layer.
      const int together = mesh.expert() > 1 ? stage.ranks_size() : std::max<int>(1, mesh.tensor());
      for (int first = 0; first < stage.ranks_size(); first += together) {
        const int end = std::min(first + together, stage.ranks_size());
        double slowest = 1;
        for (int i = first; i < end; ++i) {
          if (const auto found = of_rank.find(stage.ranks(i)); found != of_rank.end())
            slowest = std::max(slowest, found->second);
        }
        for (int i = first; i < end; ++i) {
          if (stage.ranks(i) < factors.size()) factors[stage.ranks(i)] = slowest;
        }
      }
    }
  }
  return factors;
}

double SlownessOfPass(const v1::Plan& plan, const v1::Program& program, const v1::Instruction& pass,
                      const std::vector<double>& factors) {
  const double own = factors[program.rank()];
  const auto& group = plan.topology()
                          .replicas(static_cast<int>(program.replica()))
                          .stages(static_cast<int>(pass.stage()))
                          .ranks();
  if (std::ranges::all_of(group, [&](uint32_t rank) { return factors[rank] == own; })) return own;
  double longest = 0;
  for (const uint32_t rank : group) {
    // Ranks of a group have the same instructions.
    const v1::Instruction& of_rank =
        plan.programs(static_cast<int>(rank)).instructions(static_cast<int>(pass.id()));
    longest = std::max(longest, static_cast<double>(of_rank.own_duration_ns()) / factors[rank]);
  }
  return longest > 0 ? static_cast<double>(pass.expected_duration_ns()) / longest : own;
}

}  // namespace penstock::core
