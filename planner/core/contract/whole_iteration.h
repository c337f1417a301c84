// Instructions that belong to no micro-batch, in a plan from anywhere.
#pragma once

#include "penstock/v1/plan.pb.h"

namespace penstock::core {

inline bool IsOfWholeIteration(v1::Op op) {
  return op == v1::OP_REDUCE_GRADIENTS || op == v1::OP_RESHARD || op == v1::OP_OPTIMIZER_STEP;
}

}  // namespace penstock::core
