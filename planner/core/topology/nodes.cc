#include "planner/core/topology/nodes.h"

namespace penstock::core {
Nodes::Nodes(const Topology& topology, int ranks_per_node, int first_rank)
    : ranks_per_node_(ranks_per_node), first_rank_(first_rank) {
  const GroupShape& group = topology.shape().group;
  for (int context = 0; context < group.context; ++context) {
    if (Worst(topology, context * group.tensor, group.tensor) == Link::kBetweenNodes)
      tensor_ = Link::kBetweenNodes;
  }
  for (int first = 0; first < group.ranks(); first += group.expert) {
    if (Worst(topology, first, group.expert) == Link::kBetweenNodes) expert_ = Link::kBetweenNodes;
  }
  for (int count = 1; count <= group.context; count *= 2) {
    std::vector<Link>& links = spans_.emplace_back();
    for (int first = 0; first < group.context; first += count) {
      links.push_back(Worst(topology, first * group.tensor, count * group.tensor));
    }
  }
}

Link Nodes::Worst(const Topology& topology, int first, int count) const {
  for (int replica = 0; replica < topology.replicas(); ++replica) {
    for (int position = 0; position < topology.pipeline(replica).positions; ++position) {
      const std::vector<int32_t>& ranks = topology.GroupAt(replica, position);
      for (int place = first + 1; place < first + count; ++place) {
        if (Between(ranks[first], ranks[place]) == Link::kBetweenNodes) return Link::kBetweenNodes;
      }
    }
  }
  return Link::kInsideNode;
}

}  // namespace penstock::core
