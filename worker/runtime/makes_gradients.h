// Which passes add to the gradients of their stage.
#pragma once

#include "worker/program/program.h"

namespace penstock::worker {

inline bool MakesGradients(Op op) {
  return op == Op::kBackward || op == Op::kBackwardInput || op == Op::kBackwardWeight;
}

}  // namespace penstock::worker
