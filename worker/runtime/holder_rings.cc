#include "worker/runtime/holder_rings.h"

#include <algorithm>
#include <cstddef>
#include <set>

namespace penstock::worker {
namespace {

// Of every stage, those at the same place of every `every` ranks of its stage groups, replica by replica.
std::set<RankGroup> RingsOf(const Topology& topology, uint32_t every) {
  std::set<RankGroup> rings;
  for (size_t stage = 0; stage < topology.replicas.front().stages.size(); ++stage) {
    for (uint32_t place = 0; place < every; ++place) {
      RankGroup ring;
      for (const ReplicaTopology& replica : topology.replicas) {
        const RankGroup& ranks = replica.stages[stage].ranks;
        for (size_t i = place; i < ranks.size(); i += every) ring.push_back(ranks[i]);
      }
      rings.insert(ring);
    }
  }
  return rings;
}

bool AreSeveralAndApart(const std::set<RankGroup>& rings) {
  std::set<uint32_t> seen;
  for (const RankGroup& ring : rings) {
    if (ring.size() < 2) return false;
    for (const uint32_t rank : ring)
      if (!seen.insert(rank).second) return false;
  }
  return true;
}

bool Covers(const RankGroup& ring, const std::map<uint32_t, WrittenShares>& parts) {
  for (size_t i = 0; i < ring.size(); ++i) {
    const auto before = parts.find(ring[(i + ring.size() - 1) % ring.size()]);
    const bool by_the_one_before = before != parts.end() && before->second == WrittenShares::kOwnAndNext;
    if (!by_the_one_before && !parts.contains(ring[i])) return false;
  }
  return true;
}

}  // namespace

std::vector<RankGroup> HolderRings(const JobConfig& job) {
  if (job.parameter_shares || job.shard_optimizer_state || job.topology.replicas.empty()) return {};
  const ReplicaTopology& replica = job.topology.replicas.front();
  std::set<RankGroup> rings = RingsOf(job.topology, replica.tensor);
  if (!AreSeveralAndApart(rings)) return {};
  if (replica.expert > 1) {
    const std::set<RankGroup> of_experts = RingsOf(job.topology, replica.expert);
    if (!AreSeveralAndApart(of_experts)) return {};
    rings.insert(of_experts.begin(), of_experts.end());
  }
  return {rings.begin(), rings.end()};
}

bool CoverAll(const std::vector<RankGroup>& rings, const std::map<uint32_t, WrittenShares>& parts) {
  return !rings.empty() &&
         std::ranges::all_of(rings, [&](const RankGroup& ring) { return Covers(ring, parts); });
}

}  // namespace penstock::worker
