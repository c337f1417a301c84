// A rank's place in its stage group: the ranks that hold a stage together (plan.proto, StageTopology).
#pragma once

#include <cstdint>

namespace penstock::worker {

struct GroupPlace {
  // Context ranks have all parameters of their tensor rank, and a part of the tokens each.
  int context = 0;
  int contexts = 1;
  // Tensor ranks have a part of the parameters each, and of the tokens of their context rank between layers.
  int tensor = 0;
  int tensors = 1;
  // Ranks that follow each other and divide the experts, all their tensor ranks among them; 1: every context
  // rank has all experts, of which its tensor ranks have a part each.
  int experts = 1;

  int ranks() const { return contexts * tensors; }
  // In the stage group.
  int index() const { return context * tensors + tensor; }
  // Among those that divide the experts with it; and which of these groups it is in.
  int expert() const { return index() % experts; }
  int expert_group() const { return index() / experts; }
  int expert_groups() const { return ranks() / experts; }
};

}  // namespace penstock::worker
