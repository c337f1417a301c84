// Which instructions of a plan are passes of micro-batches through stages.
#pragma once

#include "penstock/v1/plan.pb.h"

namespace penstock::core {

inline bool IsPass(v1::Op op) {
  return op == v1::OP_FORWARD || op == v1::OP_BACKWARD || op == v1::OP_BACKWARD_INPUT ||
         op == v1::OP_BACKWARD_WEIGHT;
}

}  // namespace penstock::core
