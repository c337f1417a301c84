// Which ranks share a node, and so by which kind of link they reach each other.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "planner/core/topology/link.h"
#include "planner/core/topology/topology.h"

namespace penstock::core {

// Ranks fill one node after the other.
class Nodes {
 public:
  Nodes() = default;
  // `ranks_per_node` is at least 1. `first_rank`: how many ranks the world has before the topology's.
  Nodes(const Topology& topology, int ranks_per_node, int first_rank = 0);

  Link Between(int rank, int other) const { return OfWorld(rank + first_rank_, other + first_rank_); }
  // Likewise, of ranks as the world numbers them.
  Link OfWorld(int rank, int other) const {
    return rank / ranks_per_node_ == other / ranks_per_node_ ? Link::kInsideNode : Link::kBetweenNodes;
  }

  // Of all stage groups the worst: over the tensor ranks of a context rank, and over all ranks of the context
  // ranks first, first + 1, ..., `count` (a power of two, which divides `first`).
  Link OfTensorRanks() const { return tensor_; }
  // Over those that divide the experts together.
  Link OfExpertRanks() const { return expert_; }
  Link OfSpan(int first, int count) const {
    const int logarithm = std::countr_zero(static_cast<unsigned>(count));
    return spans_[static_cast<size_t>(logarithm)][static_cast<size_t>(first) >> logarithm];
  }

 private:
  // Over all groups, of the places [first, first + count).
  Link Worst(const Topology& topology, int first, int count) const;

  int ranks_per_node_ = 1;
  int first_rank_ = 0;
  Link tensor_ = Link::kInsideNode;
  Link expert_ = Link::kInsideNode;
  // By the logarithm of the count, then by first / count.
  std::vector<std::vector<Link>> spans_;
};

}  // namespace penstock::core
