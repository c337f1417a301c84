// Which rank a transfer goes from, and which one it goes to.
#pragma once

#include "penstock/v1/plan.pb.h"

namespace penstock::core {

struct TransferEnds {
  int from = 0;
  int to = 0;
};

// `instruction`: a SEND or RECV of the rank.
inline TransferEnds EndsOfTransfer(int rank, const v1::Instruction& instruction) {
  const auto peer = static_cast<int>(instruction.transfer().peer());
  return instruction.op() == v1::OP_SEND ? TransferEnds{rank, peer} : TransferEnds{peer, rank};
}

}  // namespace penstock::core
