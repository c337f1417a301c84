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

  int ranks() const { return contexts * tensors; }
};

}  // namespace penstock::worker
