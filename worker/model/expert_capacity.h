// How many rows of a sample an expert takes, where the model limits that (Lepikhin et al., "GShard: scaling
// giant models with conditional computation and automatic sharding", ICLR 2021, section 3.2, algorithm 1,
// with a sample for a group): those of the tokens that chose it first come first, of them those of earlier
// tokens.
//
// A sample's rows depend on that sample alone. So neither micro-batches nor their parts nor ranks show: ranks
// that have tokens of one sample tell each other what each token chose.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "worker/model/token_rows.h"

namespace penstock::worker {

// [tokens, per_token] bool: whether the expert takes the row. Undefined: all are taken. `chosen`: [tokens,
// per_token] of the tokens that this rank routes. All ranks of the stage group call it; the host waits for
// nothing.
at::Tensor TakenRows(const TokenRows& rows, const at::Tensor& chosen, int64_t experts);

}  // namespace penstock::worker
