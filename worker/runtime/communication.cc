#include "worker/runtime/communication.h"

#include <algorithm>
#include <iterator>
#include <vector>

namespace penstock::worker {

PassGroups PassGroupsOf(const Topology& topology, uint32_t rank) {
  return {.place = topology.PlaceOf(rank),
          .tensors = topology.TensorGroup(rank),
          .contexts = topology.ContextGroup(rank),
          .experts = topology.ExpertGroup(rank)};
}

void SetGroups(const JobConfig& job, uint32_t rank, CommunicatorOptions& options) {
  options.rank = rank;
  options.world_size = job.world_size();
  options.groups =
      job.parameter_shares ? std::vector<RankGroup>{job.topology.WorldGroup()} : job.topology.GroupsOf(rank);
  options.connects_all_pairs = job.parameter_shares;
  options.links = job.topology.LinksOf(rank);
  options.passes = PassGroupsOf(job.topology, rank);
  options.joins_passes_later = !job.strategies.empty();
  for (size_t i = 1; i < job.strategies.size(); ++i) {
    const Topology& topology = job.strategies[i].topology;
    options.other_passes.push_back(PassGroupsOf(topology, rank));
    std::ranges::copy(topology.LinksOf(rank), std::back_inserter(options.links));
  }
}

}  // namespace penstock::worker
