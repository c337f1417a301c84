// Which instructions are passes of micro-batches through stages.
#pragma once

#include "worker/program/program.h"

namespace penstock::worker {

inline bool IsPass(Op op) {
  return op == Op::kForward || op == Op::kBackward || op == Op::kBackwardInput || op == Op::kBackwardWeight;
}

}  // namespace penstock::worker
